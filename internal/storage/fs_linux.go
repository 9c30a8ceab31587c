package storage

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Sync implements File. It does not sync the file's timestamps, which would cost a second write.
func (f *osFile) Sync() error { return retry(func() error { return unix.Fdatasync(int(f.Fd())) }) }

// openDirect opens a file for durable writes that bypass the page cache. It returns nil if the file
// system does not support them.
func openDirect(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|unix.O_DIRECT|unix.O_DSYNC, 0)
	if noDirect(err) {
		return nil, nil
	}
	return f, err
}

// allocate reserves space for the first size bytes of a file, if the file system supports this.
func allocate(f *os.File, size int64) error {
	err := retry(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// retry repeats a call as long as a signal interrupts it before it has any effect.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
