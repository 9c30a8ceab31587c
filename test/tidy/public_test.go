package tidy

import (
	"go/ast"
	"go/token"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// ceilings limits the number of names that each public package exports. A ceiling may only be
// lowered, because a published name must be kept forever. Fifteen names are enough for a package
// with a single purpose.
var ceilings = map[string]int{
	"client":               18,
	"client/cache":         11,
	"client/leases":        8,
	"client/lock":          15,
	"client/members":       8,
	"client/metrics":       3,
	"client/contrib/nodes": 11,
	"client/contrib/pool":  11,
	"client/queue":         9,
	"client/store":         22,
	"lease":                29,
	"plan":                 49,
	"server":               27,
}

// exported returns the exported types, functions, variables and constants of a package. Each is
// mapped to the name that it counts as: a constant counts as its type. Methods do not count.
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

func addNames(out map[string]string, d *ast.GenDecl) {
	of := "" // a constant without a value has the type of the preceding one
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

func count(names map[string]string) int {
	kinds := map[string]bool{}
	for _, k := range names {
		kinds[k] = true
	}
	return len(kinds)
}

// typeName returns the type of a constant if its declaration states one, either as its type or as a
// conversion.
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

// public returns the files of the packages that programs can import, keyed by directory.
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

func TestExportedNames(t *testing.T) {
	found := public(t)
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		n, ceiling := count(exported(found[dir])), ceilings[dir]
		switch {
		case n > ceiling:
			t.Errorf("%s exports %d names, at most %d are allowed: hide or merge some",
				dir, n, ceiling)
		case n < ceiling:
			t.Errorf("%s exports only %d names: lower its ceiling", dir, n)
		}
	}
	for dir := range ceilings {
		if found[dir] == nil {
			t.Errorf("package %s does not exist: delete its ceiling", dir)
		}
	}
}

// TestExported checks that constants count as their type.
func TestExported(t *testing.T) {
	s, err := parse("client/a.go", []byte(`package client
type Kind int
const (
	A Kind = iota
	B
)
const C = Kind(1)
const D = 2
var ErrX, errY error
type T struct{}
func (T) Method() {}
func New() T { return T{} }
`))
	if err != nil {
		t.Fatal(err)
	}
	names := exported([]*source{s})
	want := []string{"A", "B", "C", "D", "ErrX", "Kind", "New", "T"}
	if got := slices.Sorted(maps.Keys(names)); !slices.Equal(got, want) || count(names) != 5 {
		t.Errorf("names are %v, %d of them counted; want %v, 5", got, count(names), want)
	}
}

// clientNeeds lists the modules that a program links in order to use the client: gRPC, protobuf and
// their dependencies.
var clientNeeds = []string{
	"leasehold.dev",
	"google.golang.org/grpc", "google.golang.org/protobuf",
	"google.golang.org/genproto/googleapis/api", "google.golang.org/genproto/googleapis/rpc",
	"golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
}

// TestClientDependencies reports any other modules, and any server packages, that the client
// imports.
func TestClientDependencies(t *testing.T) {
	const format = "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}"
	cmd := exec.Command("go", "list", "-deps", "-f", format, "./client/...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		path, module, _ := strings.Cut(strings.TrimSpace(line), " ")
		if module != "" && !slices.Contains(clientNeeds, module) {
			t.Errorf("the client imports %s of module %s", path, module)
		}
		dir := strings.TrimPrefix(path, "leasehold.dev/")
		if withinAny(dir, []string{
			"server", "test", "internal/api", "internal/cli", "internal/fsm", "internal/listen",
			"internal/replica", "internal/serve", "internal/storage", "internal/transport",
		}) {
			t.Errorf("the client imports %s, which belongs to the server", path)
		}
	}
}
