package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

var picturesFlag = flag.Bool("pictures", false, "draw the pictures of documents anew")

// Goal: the pictures of the documents are what the tool draws. Method: every line
// "leasehold plan ... > docs/img/..." of the documents is run; a backslash continues a line.
//
//	go test ./internal/cli -run TestPictures -pictures
func TestPictures(t *testing.T) {
	if runtime.GOARCH != "amd64" && !*picturesFlag {
		t.Skip("other processors round the last digit in other ways")
	}
	t.Chdir("../..")
	drawn := 0
	for _, document := range []string{"docs/choosing-a-lease.md", "docs/caches.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
			command, file, ok := strings.Cut(strings.TrimSpace(line), " > docs/img/")
			words := strings.Fields(command)
			if !ok || len(words) < 2 || words[0] != "leasehold" {
				continue
			}
			drawn++
			checkPicture(t, words[1:], filepath.Join("docs/img", file))
		}
	}
	if drawn != 5 {
		t.Errorf("the documents have %d pictures, want 5", drawn)
	}
}

// checkPicture compares a file with what a command draws, or draws it anew.
func checkPicture(t *testing.T, args []string, name string) {
	t.Helper()
	code, out, stderr := try(Process{Args: args})
	if code != 0 {
		t.Errorf("%v: exit code %d: %s", args, code, stderr)
		return
	}
	if *picturesFlag {
		if err := os.WriteFile(name, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if is, err := os.ReadFile(name); err != nil || !bytes.Equal(is, []byte(out)) {
		t.Errorf("%s is not what %v draws (%v): run with -pictures", name, args, err)
	}
}
