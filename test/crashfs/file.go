package crashfs

import (
	"io"
	"io/fs"
	"syscall"
)

type file struct {
	fs     *FS
	inode  *inode
	closed bool
}

// name returns the current name of the file.
func (f *file) name() string {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.inode.name
}

// Size implements storage.File.
func (f *file) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.inode.size, nil
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(b []byte, at int64) (n int, err error) {
	if err := f.fs.op(Read, f.name()); err != nil {
		return 0, err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return 0, fs.ErrClosed
	}
	for n < len(b) && at < f.inode.size {
		from := at % pageBytes
		m := min(len(b)-n, int(pageBytes-from), int(f.inode.size-at))
		if p := f.inode.pages[at/pageBytes]; p == nil {
			clear(b[n : n+m])
		} else {
			copy(b[n:n+m], p[from:])
		}
		n, at = n+m, at+int64(m)
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(b []byte, at int64) (n int, err error) {
	if err := f.fs.op(Write, f.name()); err != nil {
		return 0, err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return 0, fs.ErrClosed
	}
	if more := at + int64(len(b)) - f.inode.size; more > 0 && f.fs.limit > 0 &&
		f.fs.usedLocked()+more > f.fs.limit {
		return 0, &fs.PathError{Op: "write", Path: f.inode.name, Err: syscall.ENOSPC}
	}
	for n < len(b) {
		p := new([pageBytes]byte)
		if was := f.inode.pages[at/pageBytes]; was != nil {
			*p = *was
		}
		m := copy(p[at%pageBytes:], b[n:])
		if *p == [pageBytes]byte{} {
			p = nil
		}
		f.inode.writeLocked(at/pageBytes, p)
		n, at = n+m, at+int64(m)
	}
	f.inode.size = max(f.inode.size, at)
	return n, nil
}

// Sync implements storage.File.
func (f *file) Sync() error {
	err := f.fs.op(Sync, f.name())
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	n := f.inode
	for at := range n.before {
		if err != nil {
			n.lost[at] = true
		} else if !n.lost[at] {
			delete(n.before, at)
		}
	}
	if err == nil {
		n.synced = n.size
	}
	return err
}

// WriteSync implements storage.File.
func (f *file) WriteSync(b []byte, at int64) error {
	if _, err := f.WriteAt(b, at); err != nil {
		return err
	}
	return f.Sync()
}

// Close implements io.Closer.
func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	return nil
}
