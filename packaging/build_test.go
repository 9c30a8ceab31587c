package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold.dev/internal/serve"
)

func bufioReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }

// variable matches settings of serve. PORT and similar names occur in a comment.
var variable = regexp.MustCompile(`(?m)^[ \-{a-z:]*LEASEHOLD_([A-Z_]+)`)

func helpOf(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	c := serve.Command()
	c.SetOut(&out)
	if err := c.Help(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestReproducible checks that two builds of the same sources are identical byte for byte, that the
// image is small enough, and that the manual page lists the flags of serve.
func TestReproducible(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	make := func() (string, map[string][32]byte) {
		b := &build{
			root: "..", out: t.TempDir(), version: "1.2.3", targets: []target{{"linux", "amd64"}},
		}
		if err := b.run(); err != nil {
			t.Fatal(err)
		}
		sums := map[string][32]byte{}
		err := filepath.WalkDir(b.out, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			name, _ := filepath.Rel(b.out, path)
			sums[name] = sha256.Sum256(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return b.out, sums
	}
	dir, first := make()
	_, second := make()
	for name, sum := range first {
		if second[name] != sum {
			t.Errorf("%s differs between two builds", name)
		}
	}
	for _, name := range []string{
		"leasehold-linux-amd64", "leasehold-linux-amd64.cdx.json",
		"leasehold-linux-amd64.licenses.txt", "leasehold_1.2.3_amd64.deb",
		"leasehold_1.2.3_amd64.rpm", "leasehold_1.2.3_amd64.image.tar", "SHA256SUMS",
		"man/leasehold-serve.1", "man/leasehold-lease-grant.1", "completions/bash",
	} {
		if _, made := first[name]; !made {
			t.Errorf("%s is not made", name)
		}
	}
	licensed(t, filepath.Join(dir, "leasehold-linux-amd64"))
	const most = 30_000_000
	s, err := os.Stat(filepath.Join(dir, "leasehold_1.2.3_amd64.image.tar"))
	if err != nil || s.Size() > most {
		t.Errorf("the image: %v, %v", s, err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "man/leasehold-serve.1"))
	if err != nil || !strings.Contains(strings.ReplaceAll(string(page), `\-`, "-"), "--config-file") {
		t.Errorf("the manual page of serve does not have its flags: %v", err)
	}
	sums := exec.Command("sha256sum", "-c", "SHA256SUMS")
	sums.Dir = dir
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("the sums: %s", out)
	}
}

// TestTime checks that the timestamps of a build come from the caller.
func TestTime(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	b := &build{root: ".."}
	if err := b.readTime(); err != nil || !b.when.Equal(time.Unix(1_700_000_000, 0)) {
		t.Errorf("%v, %v", b.when, err)
	}
}

// TestLibraries checks that the bill of materials lists external modules, under the names of their
// replacements if any, and no directory of this repository.
func TestLibraries(t *testing.T) {
	var names []string
	for _, c := range libraries(&debug.BuildInfo{GoVersion: "go1.26.0", Deps: []*debug.Module{
		{Path: "a.example/a", Version: "v1.0.0"},
		{Path: "a.example/b", Version: "v1.0.0", Replace: &debug.Module{
			Path: "./b", Version: "(devel)",
		}},
		{Path: "a.example/c", Version: "v1.0.0", Replace: &debug.Module{
			Path: "b.example/c", Version: "v1.1.0",
		}},
	}}) {
		names = append(names, c.URL)
	}
	want := []string{
		"pkg:golang/std@1.26.0", "pkg:golang/a.example/a@v1.0.0", "pkg:golang/b.example/c@v1.1.0",
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}
