package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLicences checks that the file contains the licenses and notices of a library and of its
// linked packages, but no directory name from this machine. A library without a license is an
// error, even if it has a notice or if one of its packages has a license.
func TestLicences(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"a/LICENSE", "a/NOTICE", "a/license.go", "a/licenses/bsd.txt", "a/in/Copying", "a/out/LICENSE",
		"b/NOTICE", "b/AUTHORS", "b/in/LICENSE",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("text of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	made := func(name string) *library {
		at := filepath.Join(dir, name)
		return &library{
			name: name, dir: at, within: map[string]bool{filepath.Join(at, "in/deep"): true},
		}
	}
	text, err := licences([]*library{made("a")})
	if err != nil || strings.Contains(string(text), dir) {
		t.Errorf("%v, %s", err, text)
	}
	for name, want := range map[string]bool{
		"LICENSE": true, "NOTICE": true, "licenses/bsd.txt": true, "in/Copying": true,
		"license.go": false, "out/LICENSE": false,
	} {
		if strings.Contains(string(text), "a: "+name+"\n\ntext of a/"+name+"\n") != want {
			t.Errorf("%s: not %v in %s", name, want, text)
		}
	}
	_, err = licences([]*library{made("a"), made("b")})
	if err == nil || err.Error() != "b has no licence file" {
		t.Errorf("a library without a licence: %v", err)
	}
}

// TestBinaryLicenses checks that each target's binary comes with a license for everything in it.
func TestBinaryLicenses(t *testing.T) {
	for _, target := range all {
		b := &build{root: ".."}
		list, err := b.linked(target)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := licences(list); err != nil {
			t.Errorf("%v: %v", target, err)
		}
	}
}

// licensed checks that a binary comes with the licenses of Go, of the page's scripts, and of each
// module in its bill of materials.
func licensed(t *testing.T, binary string) {
	t.Helper()
	text, err := os.ReadFile(binary + ".licenses.txt")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(binary + ".cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	var bill struct{ Components []component }
	if err := json.Unmarshal(data, &bill); err != nil {
		t.Fatal(err)
	}
	want := []string{"Go: LICENSE", "scripts: LICENSE-htm.txt", "scripts: LICENSE-preact.txt"}
	for _, c := range bill.Components[1:] { // the first component is Go
		want = append(want, c.Name+" "+c.Version+": ")
	}
	for _, w := range want {
		if !strings.Contains(string(text), w) {
			t.Errorf("the licences do not have %q", w)
		}
	}
}
