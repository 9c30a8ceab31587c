package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Goal: word of a run is there while it lasts and when it has ended, and its end puts nothing into
// a directory that somebody is removing, which would then not be empty.
func TestSaveRun(t *testing.T) {
	dir := t.TempDir()
	r := Run{Member: "1", Process: 7}
	for _, stopped := range []time.Time{{}, time.Unix(1, 0).UTC()} {
		r.Stopped = stopped
		if err := SaveRun(dir, r); err != nil {
			t.Fatal(err)
		}
		if got := LastRun(dir); got.Member != "1" || !got.Stopped.Equal(stopped) {
			t.Errorf("the last run is %+v", got)
		}
	}
	name := filepath.Join(dir, runFile)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := SaveRun(dir, r); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the end of a run made its file again: %v", err)
	}
}

// Goal: why a run cannot be noted is said; what was noted before stays, unless the disk took it.
// What cannot be read is no word of a run.
func TestSaveRunFails(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, runFile)
	if err := SaveRun(filepath.Join(dir, "gone"), Run{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
	if err := SaveRun(dir, Run{Member: "1"}); err != nil {
		t.Fatal(err)
	}
	if err := SaveRun(dir, Run{Started: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("a year that JSON cannot have is noted")
	}
	if got := LastRun(dir); got.Member != "1" {
		t.Errorf("the last run is %+v", got)
	}
	if err := os.WriteFile(name, []byte(`{"member":"1","process":"7"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := LastRun(dir); !reflect.DeepEqual(got, Run{}) {
		t.Errorf("half of a file is taken for %+v", got)
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	if err := errors.Join(os.Remove(name), os.Symlink("/dev/full", name)); err != nil {
		t.Fatal(err)
	}
	if err := SaveRun(dir, Run{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
}

// Goal: a directory on which no member may run is told by the file that says so, and why.
func TestUnusable(t *testing.T) {
	dir := t.TempDir()
	if err := Unusable(dir); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
	for _, c := range []struct {
		name string
		want error
		text string
	}{
		{RolledBack, ErrRolledBack, "(m2 said so)"},
		{Restoring, ErrHalfRestored, ""}, // comes first
	} {
		if err := os.WriteFile(filepath.Join(dir, c.name), []byte("m2 said so\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Unusable(dir); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("with %s: %v", c.name, err)
		}
	}
}
