package tidy

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// An example shows a type if its own name says so, if it names the type, or if it names what
// yields one: a function or a method with such a result, a field, a constant or a variable. What
// yields it may be in another package that programs import, as the methods of the client are for
// the results in package store.
// Names are enough to tell: nothing is compiled here, the compiler does that.

// types returns the exported types of a package, and which of them each name yields.
func types(files []*source) (list []string, yields map[string][]string) {
	yields = map[string][]string{}
	for _, s := range files {
		if s.isTest() {
			continue
		}
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Type.Results != nil {
					addFields(yields, d.Name.Name, d.Type.Results.List)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if t, ok := spec.(*ast.TypeSpec); ok && t.Name.IsExported() {
						list = append(list, t.Name.Name)
						addMembers(yields, t.Type)
					}
				}
			}
		}
	}
	for name, kind := range exported(files) {
		if kind != name {
			yields[name] = append(yields[name], kind) // a constant
		}
	}
	slices.Sort(list)
	return list, yields
}

// addMembers adds the fields of a struct and the methods of an interface.
func addMembers(yields map[string][]string, t ast.Expr) {
	var list []*ast.Field
	switch t := t.(type) {
	case *ast.StructType:
		list = t.Fields.List
	case *ast.InterfaceType:
		list = t.Methods.List
	}
	for _, f := range list {
		for _, n := range f.Names {
			addFields(yields, n.Name, []*ast.Field{f})
		}
	}
}

// addResults adds which exported types of a package the functions and methods of others yield.
func addResults(yields map[string][]string, of string, others []*source) {
	for _, s := range others {
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Type.Results == nil || s.isTest() {
				continue
			}
			ast.Inspect(f.Type.Results, func(n ast.Node) bool {
				if x, ok := n.(*ast.SelectorExpr); ok && selector(x) == of+"."+x.Sel.Name {
					yields[f.Name.Name] = append(yields[f.Name.Name], x.Sel.Name)
				}
				return true
			})
		}
	}
}

// addFields adds that a name yields the exported types that occur in some fields.
func addFields(yields map[string][]string, name string, list []*ast.Field) {
	for _, f := range list {
		ast.Inspect(f.Type, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.IsExported() {
				yields[name] = append(yields[name], id.Name)
			}
			_, elsewhere := n.(*ast.SelectorExpr)
			return !elsewhere
		})
	}
}

// shown returns what the examples of a package show.
func shown(files []*source, yields map[string][]string) map[string]bool {
	out := map[string]bool{}
	for _, s := range files {
		if !s.isTest() {
			continue
		}
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || f.Body == nil {
				continue
			}
			of, ok := strings.CutPrefix(f.Name.Name, "Example")
			if !ok {
				continue
			}
			of, _, _ = strings.Cut(of, "_")
			out[of] = true
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if x, ok := n.(*ast.SelectorExpr); ok {
					out[x.Sel.Name] = true
					for _, t := range yields[x.Sel.Name] {
						out[t] = true
					}
				}
				return true
			})
		}
	}
	return out
}

// unshown returns the exported types of a package that no example of it shows; others are files
// of other packages.
func unshown(files, others []*source) []string {
	list, yields := types(files)
	addResults(yields, strings.TrimSuffix(files[0].ast.Name.Name, "_test"), others)
	seen := shown(files, yields)
	return slices.DeleteFunc(list, func(t string) bool { return seen[t] })
}

// TestExamples: a reader of a type's documentation finds there how it is used.
func TestExamples(t *testing.T) {
	found := public(t)
	all := slices.Concat(slices.Collect(maps.Values(found))...)
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		for _, name := range unshown(found[dir], all) {
			t.Errorf("%s.%s is in no example: add one, or use it in one", dir, name)
		}
	}
}

// TestExamplesMissing plants types of which some are in an example.
func TestExamplesMissing(t *testing.T) {
	parsed := func(path, text string) *source {
		s, err := parse(path, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	got := unshown([]*source{
		parsed("client/a.go", `package client
type Named int
type ByName struct{}
type Result struct{ Part []Inner; Other Hidden }
type Inner struct{}
type Kind int
const One Kind = 1
type Hidden struct{}
type Alone struct{}
type Made struct{}
func (Named) Do() (*Result, error) { return nil, nil }
func (Named) Skip() (Alone, time.Time) { return Alone{}, time.Time{} }
`),
		parsed("client/a_test.go", `package client_test
func ExampleByName_more() {
	r, _ := client.Named(1).Do()
	fmt.Println(r.Part, client.One)
	others.Make()
}
func TestOther() { client.Named(1).Skip() }
`),
	}, []*source{
		parsed("others/a.go", `package others
func Make() (*client.Made, error) { return nil, nil }
func Skip() *client.Alone { return nil }
`),
	})
	if want := []string{"Alone", "Hidden"}; !slices.Equal(got, want) {
		t.Errorf("not shown: %v, want %v", got, want)
	}
}
