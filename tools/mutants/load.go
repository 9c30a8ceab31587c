package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is the module to mutate.
const module = "leasehold.dev"

// A goPackage is a package listed by the go command.
type goPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// list returns packages and everything they import.
func list(dirs []string) (map[string]goPackage, error) {
	args := []string{"list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles"}
	for _, d := range dirs {
		args = append(args, "./"+d)
	}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	all := make(map[string]goPackage)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("go list: %w", err)
		}
		all[p.ImportPath] = p
	}
}

// Code contains packages together with all their mutants.
type Code struct {
	Mutants []Mutant // numbered from 1
	Files   map[string][]byte
}

// Load creates the mutants of the packages in the given directories of the module.
func Load(dirs []string) (*Code, error) {
	all, err := list(dirs)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(all[path].Export)
	})
	code := &Code{Files: make(map[string][]byte)}
	for _, dir := range dirs {
		if err := code.add(fset, imports, dir, all[module+"/"+dir]); err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
	}
	return code, nil
}

// add creates the mutants of one package.
func (code *Code) add(fset *token.FileSet, im types.Importer, dir string, p goPackage) error {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	info := &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue),
		Defs:  make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object),
	}
	check := types.Config{Importer: im}
	if _, err := check.Check(p.ImportPath, fset, files, info); err != nil {
		return err
	}
	names := make(map[string]int)
	for _, f := range files {
		path := fset.Position(f.Package).Filename
		if filepath.Base(path) == "invariants.go" {
			continue // skips checks for tests and the simulator, which never fail in correct code
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		c := &changer{
			dir: dir, fset: fset, info: info, source: source,
			first: 1 + len(code.Mutants), names: names,
		}
		if text := c.change(f); text != nil {
			code.Files[path] = text
		}
		code.Mutants = append(code.Mutants, c.mutants...)
	}
	return nil
}

// runtimeSource is the source of package mutant. The overlay adds it to the changed module, which
// could not import a package from this module.
//
//go:embed mutant/mutant.go
var runtimeSource []byte

// moduleRoot returns the directory of the module to mutate.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}

// Overlay writes the changed files to dir and returns the path of the file for the go command's
// -overlay flag.
func (code *Code) Overlay(dir string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	add := func(path string, text []byte) error {
		to := filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), filepath.Base(path)))
		replace[path] = to
		return os.WriteFile(to, text, 0o600)
	}
	if err := add(filepath.Join(root, "internal/mutant/mutant.go"), runtimeSource); err != nil {
		return "", err
	}
	paths := slices.Sorted(maps.Keys(code.Files))
	for _, path := range paths {
		if err := add(path, code.Files[path]); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
