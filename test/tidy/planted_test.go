package tidy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// importing returns a file that imports a single path.
func importing(file, path string) string {
	return fmt.Sprintf("%s: package p; import _ %q", file, path)
}

// TestRulesFind plants files, written as "path: text", and expects each rule to report only the
// faulty ones.
func TestRulesFind(t *testing.T) {
	const ours = "leasehold.dev/"
	for rule, files := range map[string]struct{ faulty, clean []string }{
		"layers": {
			faulty: []string{
				"util/a.go: package util",                     // not in any layer
				importing("lease/a.go", ours+"internal/fsm"),  // imports upwards
				importing("internal/mvcc/a.go", ours+"lease"), // imports within the same layer
				importing("client/a.go", ours+"internal/fsm"), // forbidden to clients
				importing("client/lock/a.go", ours+"internal/storage"),
				importing("internal/storage/a.go", "google.golang.org/grpc"),
				importing("internal/mvcc/a.go", "net/http"),
				importing("bench/compare/a.go", ours+"internal/fsm"),
				importing("internal/cli/a.go", ours+"bench/compare"),
				importing("bench/sidebyside/a.go", ours+"internal/load"),
				importing("test/e2e/a_test.go", ours+"internal/fsm"),
				importing("internal/cli/a.go", ours+"test/sim"),
			},
			clean: []string{
				importing("internal/fsm/a.go", ours+"lease"),
				importing("internal/load/a.go", ours+"internal/load/mix"),
				importing("internal/load/mix/a.go", ours+"internal/load"),
				importing("client/a.go", ours+"api/leasehold/v1"),
				importing("internal/transport/a.go", "google.golang.org/grpc"),
				importing("lease/a_test.go", ours+"internal/fsm"),
				importing("test/sim/a.go", ours+"internal/fsm"),
			},
		},
		"pure": {
			faulty: []string{
				importing("lease/a.go", "time"),
				importing("internal/mvcc/a.go", "sync"),
				importing("plan/a.go", "github.com/tidwall/btree"),
				"plan/a.go: package plan; import \"time\"; var a = time.Now()",
				"internal/fsm/a.go: package fsm; func a() { go a() }",
			},
			clean: []string{
				importing("lease/a_test.go", "time"),
				importing("internal/mvcc/a.go", "sync/atomic"),
				importing("internal/mvcc/a.go", "github.com/tidwall/btree"),
				importing("plan/a.go", "time"),
				importing("server/a.go", "time"),
			},
		},
		"line length": {
			faulty: []string{"server/a.go: package server // " + strings.Repeat("x", 98)},
			clean:  []string{"server/a.go: package server // " + strings.Repeat("é", 80)},
		},
		"documented names": {
			faulty: []string{
				"server/a.go: package server; func A() {}",
				"server/a.go: package server; const A = 1",
				"server/a.go: package server\n// T is.\ntype T int\nfunc (*T) A() {}",
			},
			clean: []string{
				"server/a.go: package server; type t int; func (t) A() {}",
				"server/a.go: package server\n// These are.\nconst (\n\tA = 1\n\tB = 2\n)",
			},
		},
		"sleep": {
			faulty: []string{
				"server/a_test.go: package p; import \"time\"; func a() { time.Sleep(1) }",
			},
			clean: []string{
				"server/a.go: package p; import \"time\"; func a() { time.Sleep(1) }",
				"server/a_test.go: package p; import \"time\"; import \"testing/synctest\"; " +
					"func a() { synctest.Test(nil, func(any) { time.Sleep(1) }) }",
			},
		},
	} {
		for _, file := range slices.Concat(files.faulty, files.clean) {
			path, text, _ := strings.Cut(file, ": ")
			s, err := parse(path, []byte(text))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			got, want := len(rules[rule](s)), 0
			if slices.Contains(files.faulty, file) {
				want = 1
			}
			if got != want {
				t.Errorf("%s: %d findings in %q, want %d", rule, got, file, want)
			}
		}
	}
}

// TestTypeSizesCount checks that the fields of embedded structs count, and that methods count as
// well.
func TestTypeSizesCount(t *testing.T) {
	s, err := parse("p/a.go", []byte("package p; type T struct { a, b int; inner; *Other }; "+
		"type inner struct { c, d, e int }; func (T) A() {}; func (*T) B() {}"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := typeSizes([]*source{s})["p.T"], [2]int{6, 2}; got != want {
		t.Errorf("fields and methods are %v, want %v", got, want)
	}
}

func TestSubject(t *testing.T) {
	for subject, good := range map[string]bool{
		"lease: expire in order of expiry, then ID": true,
		"internal/api/etcd, server: one port":       true,
		".ci: run staticcheck":                      true,
		"":                                          false,
		"update":                                    false,
		"Lease: expire in order":                    false,
		"lease: stop.":                              false,
		"lease expire: ":                            false,
		"fix(lease): no":                            false,
	} {
		if subjectForm.MatchString(subject) != good {
			t.Errorf("%q: want %v", subject, good)
		}
	}
}
