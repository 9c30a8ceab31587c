package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenceFile matches the names of files that contain licenses, notices or authors.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|authors)\b`)

// library is third-party code in a binary: a module, Go's own packages, or the scripts of the web
// page.
type library struct {
	name, dir string
	within    map[string]bool // directories of the module's packages that are linked
}

// licences writes the licenses of all third-party code in a target's binary to a file.
func (b *build) licences(t target) error {
	list, err := b.linked(t)
	if err != nil {
		return err
	}
	text, err := licences(list)
	if err != nil {
		return err
	}
	return os.WriteFile(b.licencesFile(t), text, 0o644)
}

// licencesFile returns the name of the file with the licenses for a target.
func (b *build) licencesFile(t target) string {
	return strings.TrimSuffix(b.binary(t), ".exe") + ".licenses.txt"
}

// linked lists the libraries in a target's binary, sorted by name. It excludes modules of this
// repository.
func (b *build) linked(t target) ([]*library, error) {
	cmd := exec.Command("go", "list", "-deps", "-tags", "grpcnotrace",
		"-json=Dir,Root,Standard,Module", "./cmd/leasehold")
	cmd.Dir, cmd.Stderr = b.root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch)
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	const page = "The page's scripts"
	all := map[string]*library{
		page: {name: page, dir: filepath.Join(b.root, "internal/api/ui/files/vendor")},
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir, Root string
			Standard  bool
			Module    *struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Path, Version string }
			}
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		l := &library{name: "Go", dir: p.Root, within: map[string]bool{}}
		if m := p.Module; m != nil {
			name, version := m.Path, m.Version
			if m.Replace != nil {
				name, version = m.Replace.Path, m.Replace.Version
			}
			if m.Main || strings.HasPrefix(name, ".") {
				continue
			}
			l.name, l.dir = name+" "+version, m.Dir
		}
		if all[l.name] == nil {
			all[l.name] = l
		}
		if !p.Standard {
			all[l.name].within[p.Dir] = true
		}
	}
	return slices.SortedFunc(maps.Values(all), func(x, y *library) int {
		return strings.Compare(x.name, y.name)
	}), nil
}

// licences returns the licenses and notices of libraries as one text. It returns an error if a
// library has no license.
func licences(list []*library) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("Leasehold contains the following libraries, under these licences.\n")
	for _, l := range list {
		dirs := map[string]bool{l.dir: true, filepath.Join(l.dir, "licenses"): true}
		for d := range l.within { // parts of a module can have their own license
			for ; len(d) > len(l.dir); d = filepath.Dir(d) {
				dirs[d] = true
			}
		}
		found := false
		for _, dir := range slices.Sorted(maps.Keys(dirs)) {
			entries, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
			for _, e := range entries {
				if !e.Type().IsRegular() || strings.HasSuffix(e.Name(), ".go") ||
					!licenceFile.MatchString(e.Name()) && filepath.Base(dir) != "licenses" {
					continue
				}
				text, err := os.ReadFile(filepath.Join(dir, e.Name()))
				if err != nil {
					return nil, err
				}
				name, _ := filepath.Rel(l.dir, filepath.Join(dir, e.Name()))
				fmt.Fprintf(&out, "\n%s\n%s: %s\n\n%s\n",
					strings.Repeat("=", 80), l.name, filepath.ToSlash(name), bytes.TrimSpace(text))
				lower := strings.ToLower(name)
				found = found || strings.HasPrefix(lower, "licen") || strings.HasPrefix(lower, "copying")
			}
		}
		if !found {
			return nil, fmt.Errorf("%s has no licence file", l.name)
		}
	}
	return out.Bytes(), nil
}
