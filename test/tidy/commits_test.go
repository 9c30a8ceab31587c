package tidy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// subjectForm matches "package: what changes", without a period at the end.
var subjectForm = regexp.MustCompile(
	`^[a-z0-9/.,{} _-]+: .+[^.]$|^(README|CHANGELOG|CONTRIBUTING): .+[^.]$|^Merge `)

// TestCommitSubjects checks the subjects of the newest commits. It is skipped without git or
// outside a checkout.
func TestCommitSubjects(t *testing.T) {
	// Stat the log so that go test does not reuse a cached result after a commit.
	_, _ = os.Stat(filepath.Join(root(t), ".git", "logs", "HEAD"))
	cmd := exec.Command("git", "log", "-n", "100", "--no-merges", "--format=%h %s")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.Is(err, exec.ErrNotFound) || errors.As(err, &exit) {
		t.Skipf("no git history: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	for row := range strings.Lines(string(out)) {
		hash, subject, _ := strings.Cut(strings.TrimSpace(row), " ")
		if !subjectForm.MatchString(subject) {
			t.Errorf("commit %s: %q is not of the form \"package: what changes\"", hash, subject)
		}
	}
}
