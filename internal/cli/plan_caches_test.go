package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Goal: what was measured is drawn beside the model, and a file that is none is refused with
// its line.
func TestMeasuredCaches(t *testing.T) {
	name := filepath.Join(t.TempDir(), "term.csv")
	draw := func(text string) (int, string, string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return try(Process{Args: []string{"plan", "caches", "--measured", name, "-o", "svg"}})
	}
	code, out, stderr := draw("# a comment\n\n1, 43.0, 64\n2,25,42\n")
	if code != 0 || !strings.Contains(out, ">measured here: messages<") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	for _, bad := range []string{"1,2\n", "1,2,3\n1,x,3\n", "1,2,3,4\n"} {
		if code, _, stderr := draw(bad); code == 0 || !strings.Contains(stderr, "line ") {
			t.Errorf("%q: exit code %d: %s", bad, code, stderr)
		}
	}
}
