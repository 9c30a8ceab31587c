package storage

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"leasehold.dev/test/crashfs"
)

// A toldFS is a file system in memory that writes down which mutations reach it, and fails some.
type toldFS struct {
	vfs.FS
	mem *crashfs.FS

	mu   sync.Mutex
	fail func(op errorfs.Op) error // nil: none
	told []errorfs.Op
}

func newToldFS() *toldFS {
	f := &toldFS{mem: crashfs.New()}
	f.FS = errorfs.Wrap(f.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.told = append(f.told, op)
		if f.fail == nil {
			return nil
		}
		return f.fail(op)
	}))
	return f
}

// failOn makes those fail for which fail returns an error; nil is none.
func (f *toldFS) failOn(fail func(op errorfs.Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// failAll makes all that comes fail, or go well, and forgets what came before.
func (f *toldFS) failAll(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told, f.fail = nil, func(errorfs.Op) error { return err }
}

// count tells how many mutations of a kind came.
func (f *toldFS) count(kind errorfs.OpKind) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, op := range f.told {
		if op.Kind == kind {
			n++
		}
	}
	return n
}

// A countedFS counts the files that are open.
type countedFS struct {
	vfs.FS
	opened, open atomic.Int64
}

func (c *countedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := c.FS.Create(name, category)
	return c.count(f), err
}

func (c *countedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := c.FS.Open(name, opts...)
	return c.count(f), err
}

func (c *countedFS) OpenReadWrite(
	name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption,
) (vfs.File, error) {
	f, err := c.FS.OpenReadWrite(name, category, opts...)
	return c.count(f), err
}

func (c *countedFS) count(f vfs.File) vfs.File {
	if f == nil {
		return nil
	}
	c.opened.Add(1)
	c.open.Add(1)
	return countedFile{f, c}
}

type countedFile struct {
	vfs.File
	fs *countedFS
}

func (f countedFile) Close() error {
	f.fs.open.Add(-1)
	return f.File.Close()
}

// A shortFile takes two bytes of its first write, and is full.
type shortFile struct {
	vfs.File
	wrote bool
}

func (f *shortFile) Write(p []byte) (int, error) {
	if f.wrote {
		return f.File.Write(p)
	}
	f.wrote = true
	n, err := f.File.Write(p[:2])
	return n, errors.Join(err, syscall.ENOSPC)
}

func (f *shortFile) WriteAt(p []byte, off int64) (int, error) {
	if f.wrote {
		return f.File.WriteAt(p, off)
	}
	f.wrote = true
	n, err := f.File.WriteAt(p[:2], off)
	return n, errors.Join(err, syscall.ENOSPC)
}

// SyncTo syncs all of the file.
func (f *shortFile) SyncTo(int64) (bool, error) { return true, f.File.Sync() }

// Close finds the disk full.
func (f *shortFile) Close() error { return errors.Join(f.File.Close(), syscall.ENOSPC) }

func mustCreate(t *testing.T, fs vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := fs.Create(name, "")
	if err != nil {
		t.Fatal(err)
	}
	return f
}
