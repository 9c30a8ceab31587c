package server

import (
	"errors"
	"os"
	"testing"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/internal/storage"
	"leasehold.dev/test/virtual"
)

// TestNoteOfEnd checks that a member marks its directory as rolled back only if a message
// contradicts its disk. An entry that cannot be applied stops all members that have it, but leaves
// their data usable by a release that can apply it.
func TestNoteOfEnd(t *testing.T) { virtual.Test(t, testNoteOfEnd) }

func testNoteOfEnd(t *testing.T) {
	code := map[bool]cause.Code{false: cause.RolledBack, true: cause.NotApplicable}
	for name, failed := range map[string]bool{"a message": false, "an entry": true} {
		dir := t.TempDir()
		c := &core{
			shell: &shell.Shell{Err: replica.ErrImpossible},
			dir:   dir,
		}
		if failed {
			c.shell.Out.Failed = c.shell.Err
		}
		err := c.end()
		var damaged interface{ ExitCode() int }
		if !errors.Is(err, replica.ErrImpossible) || errors.As(err, &damaged) == failed ||
			causeOf(err) != code[failed] {
			t.Errorf("%s: it ends with %v", name, err)
		}
		if err := storage.Unusable(dir); errors.Is(err, storage.ErrRolledBack) == failed {
			names, _ := os.ReadDir(dir)
			t.Errorf("%s: it leaves %v, which means %v", name, names, err)
		}
	}
}
