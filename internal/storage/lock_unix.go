//go:build unix

package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// lockToRead keeps a directory from being opened by a member, and returns ErrLocked if one has it
// open. Pebble's own lock would write to the file. A process that only reads takes the same
// lock as other readers; if the file is not there, no process has it locked. The kernel lets
// go of all locks that a process has on a file when it closes that file, however often it has it
// open, so a process that runs a member must not call this.
func lockToRead(fsys vfs.FS, name string) (io.Closer, error) {
	if fsys != vfs.Default {
		return fsys.Lock(name)
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nopCloser{}, nil
	}
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_RDLCK})
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("%w: a member runs on it", ErrLocked)
	}
	return nil, fmt.Errorf("lock %s: %w", name, err)
}
