package supervise

import (
	"os"
	"testing"
)

// TestOutputWithoutReader checks that a child does not inherit an output that no longer has a
// reader. Writing to it would kill the child.
func TestOutputWithoutReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if withReader(w) == nil {
		t.Error("a pipe with a reader is replaced")
	}
	_ = r.Close()
	if withReader(w) != nil {
		t.Error("a pipe without a reader is used")
	}
}
