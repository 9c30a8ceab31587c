package tidy

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// forOthers says why names that no other package names are exported all the same. Without a name
// it is about all of a package.
var forOthers = map[string]string{
	"internal/api.ErrDuplicateKey": "it has a code in the table of errors",
	"internal/api.ErrTooDeep":      "it has a code in the table of errors",
	"internal/fsm.ErrRevision":     "the table of errors says that it has no code",
}

// forNobody returns the exported functions, variables and constants of internal packages that no
// other package names. Types do not count, and neither do the constants of an exported type: a
// value may be passed on by somebody who names neither.
func forNobody(sources []*source) []string {
	declared, used, called := map[string][]*source{}, map[string]bool{}, map[string]string{}
	for _, s := range sources {
		if !s.isTest() && !s.generated {
			called[s.dir()] = s.ast.Name.Name
			if slices.Contains(strings.Split(s.dir(), "/"), "internal") {
				declared[s.dir()] = append(declared[s.dir()], s)
			}
		}
	}
	for _, s := range sources {
		s.names(called, used)
	}
	var out []string
	for dir, files := range declared {
		types := typesOf(files)
		for name, counts := range exported(files) {
			if name == counts && !types[name] && !used[dir+"."+name] {
				out = append(out, dir+"."+name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// names adds to used what s names of other packages, as "directory.Name". called has the names of
// the packages.
func (s *source) names(called map[string]string, used map[string]bool) {
	dirs := map[string]string{}
	for _, i := range s.ast.Imports {
		dir, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module+"/")
		if !ours {
			continue
		}
		name := called[dir]
		if i.Name != nil {
			name = i.Name.Name
		}
		dirs[name] = dir
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && dirs[id.Name] != "" {
			used[dirs[id.Name]+"."+sel.Sel.Name] = true
		}
		return true
	})
}

// typesOf returns the names of all types that the files declare.
func typesOf(files []*source) map[string]bool {
	out := map[string]bool{}
	for _, s := range files {
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				out[spec.Name.Name] = true
			}
			return true
		})
	}
	return out
}

// TestNoNamesForNobody: what an internal package exports is for another one.
func TestNoNamesForNobody(t *testing.T) {
	needed := map[string]bool{}
	for _, name := range forNobody(load(t)) {
		dir := strings.TrimSuffix(name, path.Ext(name))
		if forOthers[name] == "" && forOthers[dir] == "" {
			t.Errorf("%s is exported, and no other package names it", name)
		}
		needed[name], needed[dir] = true, true
	}
	for name := range forOthers {
		if !needed[name] {
			t.Errorf("%s needs no reason to be exported any more: drop it from forOthers", name)
		}
	}
}

// TestForNobody: the check finds names that nobody uses, and no others.
func TestForNobody(t *testing.T) {
	var sources []*source
	for name, text := range map[string]string{
		"internal/a/a.go": `package a
type Kind int
const One Kind = 1
const Free = 2
var ErrUsed, ErrFree error
func Used() {}
func Own() {}
func Alone() {}
`,
		"internal/a/a_test.go": "package a\nfunc f() { Alone() }",
		"internal/a/x_test.go": "package a_test\nimport \"leasehold.dev/internal/a\"\nvar _ = a.Own",
		"b/b.go": `package b
import c "leasehold.dev/internal/a"
var _, _ = c.Used, c.ErrUsed
`,
	} {
		s, err := parse(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, s)
	}
	got := forNobody(sources)
	want := []string{"internal/a.Alone", "internal/a.ErrFree", "internal/a.Free"}
	if !slices.Equal(got, want) {
		t.Errorf("for nobody are %v, want %v", got, want)
	}
}
