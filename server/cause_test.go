package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/member/identity"
	"leasehold.dev/internal/storage"
	"leasehold.dev/test/virtual"
)

// TestRunIsNoted checks that run.json identifies the process using a data directory, and later
// records how that run, or a failed start, ended.
func TestRunIsNoted(t *testing.T) { virtual.Test(t, testRunIsNoted) }

func testRunIsNoted(t *testing.T) {
	c := testConfig(t.TempDir())
	onDisk(c)
	r := run(t, c)
	got := storage.LastRun(c.DataDir)
	if got.Member != fmt.Sprintf("%x", r.node.member) || got.Name != c.Name ||
		got.Cluster != fmt.Sprintf("%x", r.node.cluster) || got.Process != os.Getpid() ||
		len(got.ClientURLs) != 1 || got.Started.IsZero() || !got.Stopped.IsZero() {
		t.Errorf("while it runs: %+v", got)
	}
	badToken := c
	badToken.PeerTokenFile = filepath.Join(c.DataDir, "none")
	for name, second := range map[string]Config{"a second member": c, "one with a mistake": badToken} {
		if _, err := New(second); err == nil {
			t.Errorf("%s starts", name)
		}
		if now := storage.LastRun(c.DataDir); now.Started != got.Started {
			t.Errorf("after %s: %+v", name, now)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if got := storage.LastRun(c.DataDir); got.Stopped.IsZero() || got.Cause != "" {
		t.Errorf("after the end: %+v", got)
	}
	badAudit, badName := c, c
	badAudit.Access.Audit.File = filepath.Join(c.DataDir, "none", "audit")
	badName.Name = ""
	rolledBack := func() error {
		return os.WriteFile(filepath.Join(c.DataDir, storage.RolledBack), nil, 0o600)
	}
	for _, x := range []struct {
		config  Config
		prepare func() error
		code    cause.Code
	}{
		{badToken, nil, cause.Failed},
		{badAudit, nil, cause.Failed},
		{badName, nil, cause.Failed},
		{c, rolledBack, cause.RolledBack},
	} {
		if x.prepare != nil {
			if err := x.prepare(); err != nil {
				t.Fatal(err)
			}
		}
		_, err := New(x.config)
		if got := storage.LastRun(c.DataDir); err == nil || got.Cause != x.code ||
			got.Text != err.Error() || got.Name != c.Name || got.Stopped.IsZero() {
			t.Errorf("a start that failed: %v, %+v", err, got)
		}
	}
}

// TestCauses checks that each error that ends a member maps to its cause code, even when wrapped.
func TestCauses(t *testing.T) { virtual.Test(t, testCauses) }

func testCauses(t *testing.T) {
	for want, err := range map[cause.Code]error{
		"":                     nil,
		cause.Failed:           errors.New("another"),
		cause.TooOld:           identity.OtherRelease(encoding.ErrNewer, "d"),
		cause.VersionNotSpoken: identity.UnsupportedVersion(errors.New("v2"), "d"),
		cause.LostData:         fmt.Errorf("member 1 rejected this member: %w", identity.LostData("d")),
		cause.CopiedData:       fmt.Errorf("m: %w", identity.ErrCopied),
		cause.Removed:          identity.ErrRemoved,
		cause.RolledBack:       storage.Unusable(rolledBackDir(t)),
		cause.Contradicted:     identity.RolledBack(errors.New("a message"), "d"),
		cause.DiskFailed:       fmt.Errorf("append: %w: %w", storage.ErrFailed, os.ErrPermission),
		cause.DiskFull:         fmt.Errorf("append: %w", storage.ErrNoSpace),
		cause.Damaged:          fmt.Errorf("open: %w", storage.ErrCorrupt),
		cause.ForeignData:      fmt.Errorf("open: %w", storage.ErrForeign),
	} {
		if got := causeOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// rolledBackDir returns a data directory marked as rolled back to an older state.
func rolledBackDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/"+storage.RolledBack, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
