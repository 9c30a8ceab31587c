package tidy

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// ceilings are how many names the packages export that programs import. They may only fall: a name
// that was published stays for ever. 15 are enough for a package that does one thing.
var ceilings = map[string]int{
	"client":               22,
	"client/cache":         11,
	"client/leases":        8,
	"client/lock":          16,
	"client/members":       8,
	"client/metrics":       3,
	"client/contrib/nodes": 11,
	"client/contrib/pool":  11,
	"client/queue":         9,
	"client/store":         22,
	"lease":                29,
	"plan":                 49,
	"server":               28,
}

// exported returns the exported names of a package, each with what it counts as: types, functions,
// variables and constants. The constants of one type count as that type, and methods do not count.
func exported(files []*source) map[string]string {
	out := map[string]string{}
	for _, s := range files {
		if s.isTest() {
			continue
		}
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.IsExported() {
					out[d.Name.Name] = d.Name.Name
				}
			case *ast.GenDecl:
				addNames(out, d)
			}
		}
	}
	return out
}

// addNames adds those of a declaration.
func addNames(out map[string]string, d *ast.GenDecl) {
	of := "" // the type of a constant is that of the one before it, if it has no value
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				out[spec.Name.Name] = spec.Name.Name
			}
		case *ast.ValueSpec:
			if spec.Type != nil || len(spec.Values) > 0 {
				of = typeName(spec)
			}
			for _, n := range spec.Names {
				switch {
				case !n.IsExported():
				case d.Tok == token.CONST && ast.IsExported(of):
					out[n.Name] = of
				default:
					out[n.Name] = n.Name
				}
			}
		}
	}
}

// count is how many names there are, of those that count.
func count(names map[string]string) int {
	kinds := map[string]bool{}
	for _, k := range names {
		kinds[k] = true
	}
	return len(kinds)
}

// typeName is the name of the type of a constant, as far as its declaration says it: as its type,
// or as a conversion.
func typeName(spec *ast.ValueSpec) string {
	switch x := spec.Type.(type) {
	case *ast.Ident:
		return x.Name
	case nil:
		if call, ok := spec.Values[0].(*ast.CallExpr); ok {
			if f, ok := call.Fun.(*ast.Ident); ok {
				return f.Name
			}
		}
	}
	return ""
}

// public returns the packages that programs import, by their directories.
func public(t *testing.T) map[string][]*source {
	out := map[string][]*source{}
	for _, files := range byPackage(load(t)) {
		dir := files[0].dir()
		inside := slices.Contains(strings.Split(dir, "/"), "internal")
		ours := within(dir, "client") || within(dir, "lease") || within(dir, "plan") ||
			within(dir, "server")
		if ours && !inside {
			out[dir] = append(out[dir], files...)
		}
	}
	return out
}

// TestExportedNames keeps the packages that programs import from growing.
func TestExportedNames(t *testing.T) {
	found := public(t)
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		n, ceiling := count(exported(found[dir])), ceilings[dir]
		switch {
		case n > ceiling:
			t.Errorf("%s exports %d names, and %d are enough: hide one, or make two to one",
				dir, n, ceiling)
		case n < ceiling:
			t.Errorf("%s exports %d names: lower its ceiling to that", dir, n)
		}
	}
	for dir := range ceilings {
		if found[dir] == nil {
			t.Errorf("there is no package %s: drop its ceiling", dir)
		}
	}
}

// TestExported: names are counted as the rule says.
func TestExported(t *testing.T) {
	s, err := parse("client/a.go", []byte(`package client
type Kind int
const (
	A Kind = iota
	B
)
const C = Kind(1)
const D = 2
const Max = 3
var ErrX, errY error
type T struct{}
func (T) Method() {}
func New() T { return T{} }
func hidden() {}
`))
	if err != nil {
		t.Fatal(err)
	}
	names := exported([]*source{s})
	got := slices.Sorted(maps.Keys(names))
	want := []string{"A", "B", "C", "D", "ErrX", "Kind", "Max", "New", "T"}
	if !slices.Equal(got, want) {
		t.Errorf("the names are %v, want %v", got, want)
	}
	if n := count(names); n != 6 { // without A, B and C
		t.Errorf("it counts %d", n)
	}
}
