// Package crashfs implements an in-memory file system for testing power failures, full disks and
// disk errors. It tracks which data has been synced, and Crash returns a state that a power failure
// at this moment could leave behind. It takes no real time, so it can be used in a testing/synctest
// bubble.
package crashfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"leasehold.dev/internal/storage"
)

const (
	pageBytes   = 4096
	sectorBytes = 512 // a disk writes each sector completely or not at all
)

// An Op is a system call on a file or directory.
type Op struct {
	Kind Kind
	Name string // name of the file or directory, or its new name
}

// A Kind is a type of system call.
type Kind int

// These are the types of system calls.
const (
	Create Kind = iota
	Open
	Read
	Write
	Sync
	Rename
	Remove
	SyncDir
)

// FS is an in-memory file system.
type FS struct {
	// Before, if not nil, is called before each Op. It may block. If it returns an error, the Op
	// fails with that error. It must be set before the file system is used.
	Before func(Op) error

	mu    sync.Mutex // guards the following fields
	files map[string]*inode
	dirs  map[string]*directory
	locks map[string]int // number of shared locks, or -1 for an exclusive lock
	limit int64          // maximum total size of all files, 0 for no limit
}

// directory holds the file names as of the last sync of the directory, and the changes since then.
type directory struct {
	synced  map[string]*inode
	changes []change
}

// change is the effect of one system call on the names in a directory. A nil value removes the
// name.
type change map[string]*inode

type page *[pageBytes]byte // nil for zeros

// inode is a file. Pages are never modified in place.
type inode struct {
	name  string // the current name
	pages map[int64]page
	size  int64
	// before holds the synced content of pages written since the last sync.
	before map[int64]page
	synced int64 // the size at the last sync
	// lost holds pages whose sync has failed. As on Linux, the next sync does not write them unless
	// they are written again.
	lost map[int64]bool
}

var _ storage.FS = (*FS)(nil)

// New returns an empty file system.
func New() *FS {
	return &FS{
		files: map[string]*inode{}, dirs: map[string]*directory{}, locks: map[string]int{},
	}
}

// Limit sets a limit on the total size of all files; 0 means no limit.
func (f *FS) Limit(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit = bytes
}

// Used returns the total size of all files.
func (f *FS) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.usedLocked()
}

func (f *FS) usedLocked() (sum int64) {
	for _, n := range f.files {
		sum += n.size
	}
	return sum
}

func (f *FS) op(kind Kind, name string) error {
	if f.Before == nil {
		return nil
	}
	if err := f.Before(Op{kind, name}); err != nil {
		return &fs.PathError{Op: fmt.Sprint("op ", int(kind)), Path: name, Err: err}
	}
	return nil
}

func missing(name string) error {
	return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// MkdirAll implements storage.FS. New directories are durable immediately.
func (f *FS) MkdirAll(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if f.dirs[d] == nil {
			f.dirs[d] = &directory{synced: map[string]*inode{}}
		}
		if d == filepath.Dir(d) {
			return nil
		}
	}
}

// List implements storage.FS.
func (f *FS) List(dir string) (names []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir = filepath.Clean(dir)
	if f.dirs[dir] == nil {
		return nil, missing(dir)
	}
	for name := range f.files {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// changeLocked changes names in a directory. All names must be in the same directory.
func (f *FS) changeLocked(c change) {
	var dir *directory
	for name, n := range c {
		dir = f.dirs[filepath.Dir(name)]
		if n == nil {
			delete(f.files, name)
		} else {
			f.files[name] = n
		}
	}
	dir.changes = append(dir.changes, c)
}

// Create implements storage.FS.
func (f *FS) Create(name string, size int64) (storage.File, error) {
	name = filepath.Clean(name)
	if err := f.op(Create, name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dirs[filepath.Dir(name)] == nil {
		return nil, missing(name)
	}
	n := f.files[name]
	if n == nil {
		n = newInode()
		n.name = name
		f.changeLocked(change{name: n})
	}
	for at := range n.pages {
		n.writeLocked(at, nil)
	}
	n.size = 0
	if f.limit > 0 && f.usedLocked()+size > f.limit {
		return nil, &fs.PathError{Op: "create", Path: name, Err: syscall.ENOSPC}
	}
	n.size = size
	return &file{fs: f, inode: n}, nil
}

// Open implements storage.FS.
func (f *FS) Open(name string) (storage.File, error) { return f.OpenWrite(name) }

// OpenWrite implements storage.FS.
func (f *FS) OpenWrite(name string) (storage.File, error) {
	name = filepath.Clean(name)
	if err := f.op(Open, name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.files[name]
	if n == nil {
		return nil, missing(name)
	}
	return &file{fs: f, inode: n}, nil
}

// Rename implements storage.FS. Both names must be in the same directory.
func (f *FS) Rename(from, to string) error {
	from, to = filepath.Clean(from), filepath.Clean(to)
	if err := f.op(Rename, to); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.files[from]
	if n == nil {
		return missing(from)
	}
	f.changeLocked(change{from: nil, to: n})
	n.name = to
	return nil
}

// Remove implements storage.FS.
func (f *FS) Remove(name string) error {
	name = filepath.Clean(name)
	if err := f.op(Remove, name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[name] == nil {
		return missing(name)
	}
	f.changeLocked(change{name: nil})
	return nil
}

// OpenDir implements storage.FS.
func (f *FS) OpenDir(name string) (storage.Dir, error) {
	name = filepath.Clean(name)
	if err := f.op(Open, name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dirs[name] == nil {
		return nil, missing(name)
	}
	return &openDir{f, name}, nil
}

type openDir struct {
	fs   *FS
	name string
}

// Sync implements storage.Dir.
func (o *openDir) Sync() error {
	if err := o.fs.op(SyncDir, o.name); err != nil {
		return err
	}
	o.fs.mu.Lock()
	defer o.fs.mu.Unlock()
	d := o.fs.dirs[o.name]
	for _, c := range d.changes {
		d.apply(c)
	}
	d.changes = nil
	return nil
}

// Close implements io.Closer.
func (o *openDir) Close() error { return nil }

func (d *directory) apply(c change) {
	for name, n := range c {
		if n == nil {
			delete(d.synced, name)
		} else {
			d.synced[name] = n
		}
	}
}

// Lock implements storage.FS.
func (f *FS) Lock(name string, shared bool) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.locks[name]
	if n < 0 || n > 0 && !shared {
		return nil, fmt.Errorf("%w: %s is locked", storage.ErrLocked, name)
	}
	if shared {
		f.locks[name]++
	} else {
		f.locks[name] = -1
	}
	return &lock{fs: f, name: name, shared: shared}, nil
}

type lock struct {
	fs     *FS
	name   string
	shared bool
	once   sync.Once
}

// Close implements io.Closer.
func (l *lock) Close() error {
	l.once.Do(func() {
		l.fs.mu.Lock()
		defer l.fs.mu.Unlock()
		if l.fs.locks[l.name]--; !l.shared {
			l.fs.locks[l.name] = 0
		}
	})
	return nil
}

// Clone returns a copy in the state that remains when the process ends but the power stays on.
// Unsynced data can still be lost.
func (f *FS) Clone() *FS { return f.copy(nil) }

// Crash returns a state that a power failure can leave behind: all synced data and some of the
// unsynced data. Each written sector either survives or is lost, independently of the order of the
// writes.
func (f *FS) Crash(rng *rand.Rand) *FS { return f.copy(rng) }

func (f *FS) copy(rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := New()
	out.limit = f.limit
	copies := map[*inode]*inode{}
	copyOf := func(n *inode) *inode {
		if n != nil && copies[n] == nil {
			copies[n] = n.left(rng)
		}
		return copies[n]
	}
	copyAll := func(c change) change {
		to := change{}
		for _, name := range slices.Sorted(maps.Keys(c)) {
			to[name] = copyOf(c[name])
		}
		return to
	}
	for _, dir := range slices.Sorted(maps.Keys(f.dirs)) {
		d := f.dirs[dir]
		left := &directory{synced: copyAll(d.synced)}
		now := &directory{synced: maps.Clone(left.synced)}
		upTo, inOrder := len(d.changes), true
		if rng != nil {
			upTo, inOrder = rng.IntN(len(d.changes)+1), rng.IntN(2) == 0
		}
		for i, c := range d.changes {
			switch {
			case rng == nil:
				left.changes = append(left.changes, copyAll(c))
				now.apply(copyAll(c))
			case inOrder && i < upTo || !inOrder && rng.IntN(2) == 0:
				left.apply(copyAll(c))
				now.apply(copyAll(c))
			}
		}
		maps.Copy(out.files, now.synced)
		out.dirs[dir] = left
	}
	return out
}

// CopyTo copies all files below a directory to the real file system.
func (f *FS) CopyTo(to, from string) error {
	f.mu.Lock()
	names := slices.Sorted(maps.Keys(f.files))
	f.mu.Unlock()
	for _, name := range names {
		rel, err := filepath.Rel(from, name)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		src, err := f.Open(name)
		if err != nil {
			return err
		}
		size, _ := src.Size()
		b := make([]byte, size)
		if _, err := src.ReadAt(b, 0); err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(dst, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func newInode() *inode {
	return &inode{pages: map[int64]page{}, before: map[int64]page{}, lost: map[int64]bool{}}
}

// left returns the file that a crash leaves behind.
func (n *inode) left(rng *rand.Rand) *inode {
	out := newInode()
	out.name, out.pages, out.size = n.name, maps.Clone(n.pages), n.size
	if rng == nil {
		out.before, out.lost, out.synced = maps.Clone(n.before), maps.Clone(n.lost), n.synced
		return out
	}
	if rng.IntN(2) == 0 {
		out.size = n.synced
	}
	keep := []int{0, 2, 8, 10}[rng.IntN(4)] // out of ten sectors
	for _, at := range slices.Sorted(maps.Keys(n.before)) {
		mixed, was, is := new([pageBytes]byte), n.before[at], n.pages[at]
		for s := 0; s < pageBytes; s += sectorBytes {
			from := was
			if rng.IntN(10) < keep {
				from = is
			}
			if from != nil {
				copy(mixed[s:s+sectorBytes], from[s:])
			}
		}
		out.pages[at] = mixed
	}
	out.synced = out.size
	return out
}

// writeLocked replaces a page.
func (n *inode) writeLocked(at int64, p page) {
	delete(n.lost, at)
	if _, dirty := n.before[at]; !dirty {
		n.before[at] = n.pages[at]
	}
	if p == nil {
		delete(n.pages, at)
	} else {
		n.pages[at] = p
	}
}
