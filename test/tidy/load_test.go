package tidy

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
)

// module is this repository's module path.
const module = "leasehold.dev"

// A source is one Go file of the repository.
type source struct {
	path      string // relative to the root, with slashes
	text      []byte
	fset      *token.FileSet
	ast       *ast.File
	generated bool
}

// dir returns the package's path below the module, or "." for the root.
func (s *source) dir() string { return path.Dir(s.path) }

func (s *source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }

// A finding is a place in the code that breaks a rule.
type finding struct {
	file string
	line int
	text string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.text) }

func (s *source) report(pos token.Pos, format string, args ...any) finding {
	return finding{s.path, s.line(pos), fmt.Sprintf(format, args...)}
}

// parse parses text into a source.
func parse(name string, text []byte) (*source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	generated := ast.IsGenerated(f) || strings.HasSuffix(name, ".pb.go")
	return &source{path: name, text: text, fset: fset, ast: f, generated: generated}, nil
}

// root returns the directory that contains the module's go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module "+module+"\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.mod of %s above the working directory", module)
		}
		dir = parent
	}
}

// load returns every hand-written Go file in the repository, including nested modules but not
// testdata. Files are read and parsed once and shared by all tests, which must not modify them.
func load(t *testing.T) []*source {
	t.Helper()
	files, err := loadOnce()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var loadOnce = sync.OnceValues(func() ([]*source, error) {
	top, err := findRoot()
	if err != nil {
		return nil, err
	}
	var paths []string
	err = filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != top && skipDir(d.Name()):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(p, ".go"):
			paths = append(paths, p)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := make([]*source, len(paths))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range paths {
		g.Go(func() (err error) {
			text, err := os.ReadFile(p)
			if err == nil {
				all[i], err = parse(filepath.ToSlash(strings.TrimPrefix(p, top+"/")), text)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s *source) bool { return s.generated })
	if len(all) == 0 {
		return nil, errors.New("no Go files found")
	}
	return all, nil
})

func skipDir(name string) bool {
	return name == "testdata" || name == "vendor" || name == "node_modules" || strings.HasPrefix(name, ".") ||
		strings.HasPrefix(name, "_")
}

// byPackage groups files by directory, sorted by path.
func byPackage(files []*source) [][]*source {
	groups := map[string][]*source{}
	for _, s := range files {
		groups[s.dir()] = append(groups[s.dir()], s)
	}
	out := make([][]*source, 0, len(groups))
	for _, g := range groups {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b []*source) int { return strings.Compare(a[0].path, b[0].path) })
	return out
}
