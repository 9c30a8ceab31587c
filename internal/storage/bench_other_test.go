//go:build !linux

package storage

import "os"

func preallocate(*os.File, int64) error { return nil }

func datasync(f *os.File) error { return f.Sync() }
