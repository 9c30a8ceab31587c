//go:build !linux

package storage

import "os"

// Sync implements File.
func (f *osFile) Sync() error { return f.File.Sync() }

// openDirect returns nil, so each write is followed by a Sync.
func openDirect(string) (*os.File, error) { return nil, nil }

// allocate does nothing. On a full disk, writing the zeros fails instead.
func allocate(*os.File, int64) error { return nil }
