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

var picturesFlag = flag.Bool("pictures", false, "draw the pictures of docs/choosing-a-lease.md "+
	"anew")

// Goal: the pictures of the documents are what the tool draws. Method: every line
// "leasehold plan ... > docs/img/..." of the document is run.
//
//	go test ./internal/cli -run TestPictures -pictures
func TestPictures(t *testing.T) {
	if runtime.GOARCH != "amd64" && !*picturesFlag {
		t.Skip("other processors round the last digit in other ways")
	}
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "docs/choosing-a-lease.md"))
	if err != nil {
		t.Fatal(err)
	}
	drawn := 0
	for line := range strings.Lines(string(text)) {
		command, file, ok := strings.Cut(strings.TrimSpace(line), " > docs/img/")
		words := strings.Fields(command)
		if !ok || len(words) < 2 || words[0] != "leasehold" {
			continue
		}
		drawn++
		code, out, stderr := try(Process{Args: words[1:]})
		if code != 0 {
			t.Errorf("%s: exit code %d: %s", line, code, stderr)
			continue
		}
		name := filepath.Join(root, "docs/img", file)
		if *picturesFlag {
			if err := os.WriteFile(name, []byte(out), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if is, err := os.ReadFile(name); err != nil || !bytes.Equal(is, []byte(out)) {
			t.Errorf("%s is not what %q draws (%v): run with -pictures", name, command, err)
		}
	}
	if drawn != 4 {
		t.Errorf("the document has %d pictures, want 4", drawn)
	}
}
