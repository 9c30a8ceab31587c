package tidy

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestIntegrations type-checks modules that use this one and are too large to build in .ci/run. It
// ignores what they import from third-party modules.
func TestIntegrations(t *testing.T) {
	for _, dir := range []string{"integrations/kubernetes", "integrations/kubernetes/cluster"} {
		paths, err := filepath.Glob(filepath.Join(root(t), dir, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(paths), err)
		}
		fset := token.NewFileSet()
		var files []*ast.File
		for _, path := range paths {
			f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		for _, err := range misused(t, fset, files) {
			t.Error(err)
		}
	}
}

// TestIntegrationsPlanted checks that TestIntegrations detects the use of a name that this module
// does not have.
func TestIntegrationsPlanted(t *testing.T) {
	const code = `package planted
import ("leasehold.dev/client"; "k8s.io/nothing")
func _(c *client.Client) { nothing.Whatever(c.Close()); c.NoSuchMethod() }`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "planted.go", code, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := misused(t, fset, []*ast.File{f})
	if len(got) != 1 || !strings.Contains(got[0].Error(), "NoSuchMethod") {
		t.Errorf("found %v; want one error about NoSuchMethod", got)
	}
}

// misused type-checks the files of a package and returns the errors. go/types assumes that a
// package that cannot be imported has every name, so only the import itself fails for a third-party
// module.
func misused(t *testing.T, fset *token.FileSet, files []*ast.File) (errs []error) {
	t.Helper()
	var known []string
	for _, f := range files {
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(path, "/")
			if first == module || !strings.Contains(first, ".") { // skips third-party modules
				known = append(known, path)
			}
		}
	}
	slices.Sort(known)
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	cmd := exec.Command("go", append(args, slices.Compact(known)...)...)
	cmd.Dir, cmd.Stderr = root(t), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	config := types.Config{
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
			if exports[path] == "" {
				return nil, fmt.Errorf("%s is of a third module", path)
			}
			return os.Open(exports[path])
		}),
		Error: func(err error) {
			if !strings.Contains(err.Error(), "is of a third module") {
				errs = append(errs, err)
			}
		},
	}
	_, _ = config.Check("checked", fset, files, nil) // returns only the first error
	return errs
}
