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

// Free returns how many bytes are free on the disk of a directory.
func Free(dir string) (uint64, error) {
	return 0, fmt.Errorf("free space of %s: %w", dir, errors.ErrUnsupported)
}
