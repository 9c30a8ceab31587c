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

// TestSaveRun checks that a run is recorded at its start and at its end. The end is not recorded if
// the file is gone, because the directory is being removed.
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
		t.Errorf("the end of a run created its file again: %v", err)
	}
}

// TestSaveRunFails checks that SaveRun returns an error if it cannot save, and keeps the previous
// record if possible. LastRun returns a zero Run for a file that it cannot parse.
func TestSaveRunFails(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, runFile)
	if err := SaveRun(filepath.Join(dir, "gone"), Run{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
	if err := SaveRun(dir, Run{Member: "1"}); err != nil {
		t.Fatal(err)
	}
	if err := SaveRun(dir, Run{Started: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("a year that JSON cannot express was saved")
	}
	if got := LastRun(dir); got.Member != "1" {
		t.Errorf("the last run is %+v", got)
	}
	if err := os.WriteFile(name, []byte(`{"member":"1","process":"7"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := LastRun(dir); !reflect.DeepEqual(got, Run{}) {
		t.Errorf("half a file was read as %+v", got)
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	if err := errors.Join(os.Remove(name), os.Symlink("/dev/full", name)); err != nil {
		t.Fatal(err)
	}
	if err := SaveRun(dir, Run{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("full disk: %v", err)
	}
}

// TestUnusable checks that certain files make a directory unusable, and that the error states the
// reason.
func TestUnusable(t *testing.T) {
	dir := t.TempDir()
	if err := Unusable(dir); err != nil {
		t.Errorf("empty directory: %v", err)
	}
	for _, c := range []struct {
		name string
		want error
		text string
	}{
		{RolledBack, ErrRolledBack, "(m2 said so)"},
		{Restoring, ErrHalfRestored, ""}, // takes precedence over RolledBack
	} {
		if err := os.WriteFile(filepath.Join(dir, c.name), []byte("m2 said so\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Unusable(dir); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("with %s: %v", c.name, err)
		}
	}
}
