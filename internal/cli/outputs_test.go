package cli

import (
	"os"
	"strings"
	"testing"

	"leasehold.dev/internal/cli/app"
)

// TestDocumentedOutput checks that the output of commands matches the documentation. The lines
// below each "$ leasehold plan ..." must occur in the output in order. In the documentation, "..."
// stands for any number of lines.
func TestDocumentedOutput(t *testing.T) {
	text, err := os.ReadFile("../../docs/planning.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for part := range strings.SplitSeq(string(text), "```\n$ leasehold ") {
		command, rest, _ := strings.Cut(part, "\n")
		if !strings.HasPrefix(command, "plan ") {
			continue
		}
		shown++
		want, _, _ := strings.Cut(rest, "```")
		code, out, stderr := try(app.Process{Args: strings.Fields(command)})
		if code != 0 {
			t.Fatalf("%s: exit code %d: %s", command, code, stderr)
		}
		for i, piece := range strings.Split(want, "...\n") {
			_, after, found := strings.Cut(out, piece)
			if !found || i == 0 && !strings.HasPrefix(out, piece) {
				t.Errorf("%s prints\n%s\nand the document has\n%s", command, out, piece)
				break
			}
			out = after
		}
	}
	if shown != 1 {
		t.Errorf("the document has %d commands, want 1", shown)
	}
}
