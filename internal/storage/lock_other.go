//go:build !unix

package storage

import (
	"errors"
	"fmt"
	"io"
)

// Lock implements FS. Members run on Unix only.
func (OS) Lock(name string, _ bool) (io.Closer, error) {
	return nil, fmt.Errorf("lock %s: %w", name, errors.ErrUnsupported)
}

// Free returns the number of free bytes on the disk that contains a directory.
func Free(dir string) (uint64, error) {
	return 0, fmt.Errorf("free space of %s: %w", dir, errors.ErrUnsupported)
}
