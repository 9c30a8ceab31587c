package tidy

import (
	"fmt"
	"strings"
	"testing"
)

// importing is a file of package pkg that imports one path.
func importing(pkg, path string) string {
	return fmt.Sprintf("package %s\n\nimport _ %q\n", pkg, path)
}

// planted are small files, each with what the rules must find in it: the names
// of the rules, in order. A rule that finds nothing in here is not a rule.
var planted = []struct {
	name, file, text string
	want             []string
}{
	{
		"clean", "lease/a.go",
		"package lease\n\nimport \"errors\"\n\nvar errA = errors.New(\"a\")\n",
		nil,
	},
	{"no room", "util/a.go", "package util\n", []string{"layers"}},
	{"upwards", "lease/a.go", importing("lease", "leasehold.dev/internal/fsm"), []string{"layers"}},
	{"sibling", "internal/mvcc/a.go", importing("mvcc", "leasehold.dev/lease"), []string{"layers"}},
	{"downwards", "internal/fsm/a.go", importing("fsm", "leasehold.dev/lease"), nil},
	{"child", "internal/load/a.go", importing("load", "leasehold.dev/internal/load/mix"), nil},
	{"parent", "internal/load/mix/a.go", importing("mix", "leasehold.dev/internal/load"), nil},
	{"messages", "client/a.go", importing("client", "leasehold.dev/internal/api/native/leasepb"), nil},
	{"stranger", "client/a.go", importing("client", "leasehold.dev/internal/fsm"), []string{"layers"}},
	{
		"stranger below", "client/lock/a.go",
		importing("lock", "leasehold.dev/internal/storage"),
		[]string{"layers"},
	},
	{
		"test looks up", "lease/a_test.go",
		importing("lease_test", "leasehold.dev/internal/fsm"), nil,
	},
	{"comparison", "bench/compare/a.go", importing("compare", "leasehold.dev/internal/load"), nil},
	{
		"comparison from inside", "bench/compare/a.go",
		importing("compare", "leasehold.dev/internal/fsm"),
		[]string{"layers"},
	},
	{
		"comparison in the product", "internal/cli/a.go",
		importing("cli", "leasehold.dev/bench/compare"),
		[]string{"layers"},
	},
	{
		"black boxes", "bench/sidebyside/a.go",
		importing("main", "leasehold.dev/internal/load"),
		[]string{"layers"},
	},
	{
		"black box", "test/e2e/a_test.go",
		importing("e2e", "leasehold.dev/internal/fsm"),
		[]string{"layers"},
	},
	{"white box", "test/sim/a.go", importing("sim", "leasehold.dev/internal/fsm"), nil},
	{
		"white box in the product", "internal/cli/a.go",
		importing("cli", "leasehold.dev/test/sim"),
		[]string{"layers"},
	},
	{
		"wire", "internal/storage/a.go",
		importing("storage", "google.golang.org/grpc"),
		[]string{"layers"},
	},
	{"clock", "lease/a.go", importing("lease", "time"), []string{"pure"}},
	{"clock in test", "lease/a_test.go", importing("lease", "time"), nil},
	{"atomic", "internal/mvcc/a.go", importing("mvcc", "sync/atomic"), nil},
	{"lock", "internal/mvcc/a.go", importing("mvcc", "sync"), []string{"pure"}},
	{"tree", "internal/mvcc/a.go", importing("mvcc", "github.com/tidwall/btree"), nil},
	{
		"module in pure", "plan/a.go",
		importing("plan", "github.com/tidwall/btree"),
		[]string{"pure"},
	},
	{"duration", "plan/a.go", importing("plan", "time"), nil},
	{
		"clock of plan", "plan/a.go", "package plan\n\nimport \"time\"\n\nvar a = time.Now()\n",
		[]string{"pure"},
	},
	{"goroutine", "internal/fsm/a.go", "package fsm\n\nfunc a() { go a() }\n", []string{"pure"}},
	{
		"long function", "server/a.go",
		"package server\n\nfunc a() {\n" + strings.Repeat("\ta()\n", 59) + "}\n",
		[]string{"function size"},
	},
	{
		"function of one screen", "server/a.go",
		"package server\n\nfunc a() {\n" + strings.Repeat("\ta()\n", 58) + "}\n", nil,
	},
	{
		"long test", "server/a_test.go",
		"package server\n\nfunc a() {\n" + strings.Repeat("\ta()\n", 70) + "}\n", nil,
	},
	{
		"parameters", "server/a.go",
		"package server\n\ntype t int\n\nfunc (t) a(b, c, d int, e, f string) {}\n",
		[]string{"parameters"},
	},
	{
		"context is free", "server/a.go",
		"package server\n\nimport \"context\"\n\nfunc a(_ context.Context, b, c, d, e int) {}\n", nil,
	},
	{
		"interface", "server/a.go",
		"package server\n\ntype t interface{ a(int, int, int, int, int) }\n",
		[]string{"parameters"},
	},
	{
		"long file", "server/a.go",
		"package server\n" + strings.Repeat("\n// a\nvar _ = 1\n", 200),
		[]string{"file size"},
	},
	{
		"long line", "server/a.go",
		"package server\n\n// " + strings.Repeat("x", 98) + "\n",
		[]string{"line length"},
	},
	{"100 columns", "server/a.go", "package server\n\n// " + strings.Repeat("é", 97) + "\n", nil},
	{"form", "server/a.go", "package server\nvar  a = 1\n", []string{"gofmt"}},
	{
		"struct", "server/a.go",
		"package server\n\ntype t struct {\n" + strings.Repeat("\t_, _, _ int\n", 7) + "}\n",
		[]string{"struct size"},
	},
	{"put off", "server/a.go", "package server\n\n// TO" + "DO: more.\n", []string{"unfinished"}},
	{"whose", "server/a.go", "package server\n\n// Who waits is told.\n", []string{"plain English"}},
	{"which", "server/a.go", "package server\n\n// A client who waits is told.\n", nil},
	{
		"function undocumented", "server/a.go",
		"package server\n\nfunc A() {}\n",
		[]string{"documented names"},
	},
	{
		"method undocumented", "server/a.go",
		"package server\n\n// T is.\ntype T int\n\nfunc (*T) A() {}\n",
		[]string{"documented names"},
	},
	{"hidden type", "server/a.go", "package server\n\ntype t int\n\nfunc (t) A() {}\n", nil},
	{
		"names undocumented", "server/a.go",
		"package server\n\ntype T int\n\nconst (\n\tA = 1\n\t// B is.\n\tB = 2\n)\n\nvar C = 1\n",
		[]string{"documented names", "documented names", "documented names"},
	},
	{"group", "server/a.go", "package server\n\n// These are.\nconst (\n\tA = 1\n\tB = 2\n)\n", nil},
	{
		"sleep", "server/a_test.go",
		"package server\n\nimport \"time\"\n\nfunc a() { time.Sleep(1) }\n",
		[]string{"sleep"},
	},
	{
		"sleep in a bubble", "server/a_test.go",
		"package server\n\nimport (\n\t\"testing/synctest\"\n\t\"time\"\n)\n\n" +
			"func a() { synctest.Test(nil, func(any) { time.Sleep(1) }) }\n", nil,
	},
}

// TestRulesFind plants one fault at a time and asks the rules for it.
func TestRulesFind(t *testing.T) {
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			s, err := parse(p.file, []byte(p.text))
			if err != nil {
				t.Fatal(err)
			}
			var found []finding
			for _, check := range perFile {
				found = append(found, check(s)...)
			}
			got := make([]string, 0, len(found))
			for _, f := range found {
				got = append(got, f.rule)
				if f.line <= 0 || !strings.HasPrefix(f.String(), p.file+":") {
					t.Errorf("the finding does not say where: %v", f)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(append([]string{}, p.want...)) {
				t.Errorf("found %q, want %q\n%v", got, p.want, found)
			}
		})
	}
}

// TestPackageComment plants packages with and without an introduction.
func TestPackageComment(t *testing.T) {
	with, without := "// Package a is.\npackage a\n", "package a\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int
	}{
		{"none", map[string]string{"a/a.go": without, "a/b.go": without}, 1},
		{"one", map[string]string{"a/a.go": without, "a/b.go": with}, 0},
		{"only in a test", map[string]string{"a/a.go": without, "a/a_test.go": with}, 1},
		{"only tests", map[string]string{"a/a_test.go": with}, 0},
	} {
		var files []*source
		for name, text := range c.files {
			s, err := parse(name, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, s)
		}
		if got := checkPackageComment(files); len(got) != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestExcuse checks that an exception takes away its finding and no other, and
// that one without a finding is reported.
func TestExcuse(t *testing.T) {
	found := []finding{{rule: "sleep", at: "a"}, {rule: "sleep", at: "b"}, {rule: "gofmt", at: "a"}}
	left, stale := excuse(found, []exception{{rule: "sleep", at: "a"}, {rule: "sleep", at: "c"}})
	if len(left) != 2 || left[0].at != "b" || left[1].rule != "gofmt" {
		t.Errorf("left %v", left)
	}
	if len(stale) != 1 || stale[0].at != "c" {
		t.Errorf("stale %v", stale)
	}
}

// Subjects of commits that are in form, and ones that are not.
func TestSubject(t *testing.T) {
	for _, good := range []string{
		"lease: expire in order of expiry, then ID",
		"internal/api/etcd, server: one port",
		".ci: run staticcheck",
	} {
		if why := checkSubject(good); why != "" {
			t.Errorf("%q: %s", good, why)
		}
	}
	for _, bad := range []string{
		"", "update", "Lease: expire in order", "lease: stop.", "lease expire: ", "fix(lease): no",
	} {
		if checkSubject(bad) == "" {
			t.Errorf("%q passes", bad)
		}
	}
}

// TestHouse keeps the plan itself in order: no room twice, and every package
// with a rule of its own has a room.
func TestHouse(t *testing.T) {
	seen := map[string]bool{}
	for _, names := range house {
		for _, n := range names {
			if seen[n] {
				t.Errorf("%s has two rooms", n)
			}
			seen[n] = true
		}
	}
	for dir := range pure {
		if !seen[dir] {
			t.Errorf("pure package %s has no room", dir)
		}
	}
	for dir := range tolerated {
		if _, ok := pure[dir]; !ok {
			t.Errorf("%s is not pure, nothing is banned there", dir)
		}
	}
}
