package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/storage"
	"leasehold.dev/test/virtual"
)

// Goal: who cannot open a data directory, because a member runs on it, finds there who that is, and
// later how it has ended; the log of a second member has the code of why it does not start. Method:
// a member that runs, a second one on its data, and the end.
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
	var log bytes.Buffer
	second := c
	second.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if _, err := New(second); err == nil || !strings.Contains(log.String(), "cause=IN_USE") {
		t.Errorf("a second member: %v, %s", err, log.String())
	}
	if now := storage.LastRun(c.DataDir); now.Started != got.Started {
		t.Errorf("after that: %+v", now)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if got := storage.LastRun(c.DataDir); got.Stopped.IsZero() || got.Cause != "" {
		t.Errorf("after the end: %+v", got)
	}
	if err := os.WriteFile(filepath.Join(c.DataDir, storage.RolledBack), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	_, err := New(second)
	if got := storage.LastRun(c.DataDir); err == nil || got.Cause != cause.RolledBack ||
		got.Text != err.Error() || got.Name != c.Name || !strings.Contains(log.String(), "error=") {
		t.Errorf("a start that failed: %v, %+v, %s", err, got, log.String())
	}
}

// Each error with which a member ends has its code, also where several are in one chain.
func TestCauses(t *testing.T) { virtual.Test(t, testCauses) }

func testCauses(t *testing.T) {
	for want, err := range map[cause.Code]error{
		"":                     nil,
		cause.Failed:           errors.New("another"),
		cause.TooOld:           otherRelease(storage.ErrVersion, "d"),
		cause.VersionNotSpoken: foreign(errors.New("v2"), "d"),
		cause.LostData:         fmt.Errorf("member 1 refuses this one: %w", lostData("d")),
		cause.CopiedData:       copiedData("d"),
		cause.Removed:          errRemoved,
		cause.RolledBack:       refuseUnusable(rolledBackDir(t)),
		cause.Contradicted:     rolledBack(errors.New("a message"), "d"),
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

// rolledBackDir is a data directory that an older state was put back onto.
func rolledBackDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/"+storage.RolledBack, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
