//go:build unix

package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Lock implements FS. It locks the open file rather than the process, so it excludes other callers
// in this process as well.
func (OS) Lock(name string, shared bool) (io.Closer, error) {
	flags, how := os.O_RDWR|os.O_CREATE, unix.LOCK_EX
	if shared {
		flags, how = os.O_RDONLY, unix.LOCK_SH
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if shared && errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(nil), nil // no process can have locked it
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s is locked", ErrLocked, name)
		}
		return nil, &fs.PathError{Op: "flock", Path: name, Err: err}
	}
	return f, nil
}

// Free returns the number of free bytes on the disk that contains a directory.
func Free(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}
