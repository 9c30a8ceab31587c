package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
