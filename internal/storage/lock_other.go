//go:build !unix

package storage

import (
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lockToRead keeps a directory from being opened by a member, and returns ErrLocked if one has it
// open. The lock file is empty, and made if it is not there.
func lockToRead(fsys vfs.FS, name string) (io.Closer, error) {
	lock, err := fsys.Lock(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrLocked, err)
	}
	return lock, nil
}
