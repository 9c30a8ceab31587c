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

// TestTypeSizesCount checks that the fields and methods of embedded types count, even if a pointer
// is embedded, and that a method that hides another one counts once.
func TestTypeSizesCount(t *testing.T) {
	for text, want := range map[string][2]int{
		"type T struct { a, b int }; func (T) A() {}; func (*T) B() {}":                    {2, 2},
		"type T struct { a int; inner }; type inner struct { b, c int }":                   {3, 0},
		"type T struct { a int; *inner }; type inner struct { b, c int }":                  {3, 0},
		"type T struct { a int; *T }":                                                      {1, 0},
		"type T struct { inner[int] }; type inner[E any] struct { b, c E }":                {2, 0},
		"type T struct { a int; *other.Inner; Unknown }":                                   {3, 0},
		"type T struct { *inner }; type inner struct{}; func (*inner) A() {}":              {0, 1},
		"type T struct { *Lessor }; type Lessor struct { a, b int }; func (Lessor) A() {}": {1, 0}, // in large
		"type T struct { inner }; type inner int; func (inner) A() {}":                     {1, 1},
		"type T struct { *inner }; type inner struct { innermost }; func (T) A() {}; " +
			"type innermost struct { a, b int }; func (*innermost) A() {}; func (innermost) B() {}": {2, 2},
	} {
		s, err := parse("lease/a.go", []byte("package lease; "+text))
		if err != nil {
			t.Fatal(err)
		}
		if got := typeSizes([]*source{s})["lease.T"]; got != want {
			t.Errorf("%s: fields and methods are %v, want %v", text, got, want)
		}
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
