package storage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// lockFile is the lock of a data directory, opened.
func lockFile(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "db", "LOCK"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// lockAsOther takes or gives back a lock as another process would: such a lock belongs to the open
// file, and stands in the way of those that belong to a process.
func lockAsOther(f *os.File, kind int16) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind})
}

// Goal: a directory on which a member runs is not inspected, one that others read is, and no
// member can open it meanwhile, but afterwards. Method: locks as other processes have them.
func TestInspectLocks(t *testing.T) {
	dir := t.TempDir()
	mustClose(t, mustBootstrap(t, Config{Dir: dir, BallastBytes: -1, ReserveBytes: -1}))
	other := lockFile(t, dir)
	inspect := func(visit func(Record) error) error {
		return Inspect(Config{Dir: dir}, Wanted{}, visit)
	}
	if err := lockAsOther(other, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	if err := inspect(nil); !errors.Is(err, ErrLocked) || !strings.HasPrefix(err.Error(), dir) {
		t.Errorf("while a member runs on it: %v", err)
	}
	if err := lockAsOther(other, unix.F_RDLCK); err != nil {
		t.Fatal(err)
	}
	records := 0
	err := inspect(func(r Record) error {
		if records++; r.Err != nil {
			t.Errorf("%s: %v", r.Kind, r.Err)
		}
		if err := lockAsOther(other, unix.F_WRLCK); err == nil {
			t.Error("a member could open it")
		}
		return nil
	})
	if err != nil || records == 0 {
		t.Errorf("while it is read: %d records, %v", records, err)
	}
	if err := lockAsOther(other, unix.F_WRLCK); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Goal: a lock that is not there is nobody's; one that cannot be opened is an error.
func TestInspectLockFile(t *testing.T) {
	dir := t.TempDir()
	mustClose(t, mustBootstrap(t, Config{Dir: dir, BallastBytes: -1, ReserveBytes: -1}))
	name, records := filepath.Join(dir, "db", "LOCK"), 0
	count := func(Record) error { records++; return nil }
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := Inspect(Config{Dir: dir}, Wanted{}, count); err != nil || records == 0 {
		t.Errorf("without a lock: %d records, %v", records, err)
	}
	if err := os.Symlink("LOCK", name); err != nil {
		t.Fatal(err)
	}
	if err := Inspect(Config{Dir: dir}, Wanted{}, nil); !errors.Is(err, unix.ELOOP) {
		t.Errorf("with a lock that nobody can open: %v", err)
	}
}
