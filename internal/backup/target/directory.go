package target

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"

	"leasehold.dev/internal/backup"
)

// directory stores objects as files. A file has a temporary name until all of it is on disk.
type directory struct{ root string }

func newDirectory(root string) *directory { return &directory{filepath.Clean(root)} }

// String implements Target.
func (d *directory) String() string { return d.root }

func (d *directory) path(name string) string {
	return filepath.Join(d.root, filepath.FromSlash(name))
}

// exists returns an error if the directory does not exist, because an unmounted disk must not be
// mistaken for an empty directory.
func (d *directory) exists() error {
	info, err := os.Stat(d.root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("directory %s does not exist; create it or mount its file system", d.root)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", d.root)
	}
	return nil
}

// Put implements Target.
func (d *directory) Put(ctx context.Context, c Content) (err error) {
	if err := d.exists(); err != nil {
		return err
	}
	to := d.path(c.Name)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	part := to + backup.PartSuffix
	if c.New { // another process may be writing it at the same time
		part = fmt.Sprintf("%s-%x%s", to, rand.Uint64(), backup.PartSuffix)
	}
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part)
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	err = c.Write(&whileLasting{ctx, w})
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if c.New {
		err = create(part, to)
	} else {
		err = os.Rename(part, to)
	}
	if err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(to))
}

// create renames a file. It fails if the new name exists. On file systems without hard links, it
// cannot prevent another process from creating that name at the same time.
func create(part, to string) error {
	switch err := os.Link(part, to); {
	case err == nil:
		return os.Remove(part)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: %s", errExists, to)
	}
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%w: %s", errExists, to)
	}
	return os.Rename(part, to)
}

func syncDirectory(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// whileLasting is a writer that fails once its context has ended.
type whileLasting struct {
	ctx context.Context
	w   io.Writer
}

// Write implements io.Writer.
func (w *whileLasting) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}

// Get implements Target.
func (d *directory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	if err := d.exists(); err != nil {
		return nil, err
	}
	f, err := os.Open(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, d.path(name))
	}
	return f, err
}

// List implements Target. It reads only those directories that can contain objects.
func (d *directory) List(ctx context.Context) ([]backup.Object, error) {
	if err := d.exists(); err != nil {
		return nil, err
	}
	var all []backup.Object
	for _, below := range []string{"", "full", "log"} {
		entries, err := os.ReadDir(d.path(below))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
				continue // removed in the meantime, or not a Leasehold object
			}
			if err != nil {
				return nil, err
			}
			all = append(all, backup.Object{Name: path.Join(below, e.Name()), Bytes: info.Size()})
		}
	}
	return all, ctx.Err()
}

// Delete implements Target.
func (d *directory) Delete(_ context.Context, name string) error {
	if err := os.Remove(d.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
