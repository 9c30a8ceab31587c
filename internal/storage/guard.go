package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A guard is the file system Pebble writes to. It passes everything on to the
// real one, but no error of a write that Pebble cannot survive comes back:
// Pebble would panic or end the process. The first such error is kept, failed is
// closed, and the goroutine that met it, like every one that wants to write
// after it, is parked for ever, so that nothing more reaches the disk. Callers
// of Pebble therefore wait for failed beside the call (see Disk.run), and a Disk
// that failed is dropped without closing Pebble.
//
// Parking leaks the goroutines and memory of one database. A member stops after
// it, or opens its disk again a few times at most.
//
// On a full disk the guard gives up the ballast and tries once more. A sync is
// never tried again: the kernel forgets what it could not write.
type guard struct {
	vfs.FS

	// writing is held for reading during every mutation, and for writing to
	// wait until none is under way.
	writing sync.RWMutex
	down    atomic.Bool

	once   sync.Once
	cause  error // valid once failed is closed
	failed chan struct{}

	// relieve is called when the disk is full, and reports whether it made room.
	relieve func() bool

	// strict makes a full disk final for table files too. It is set while
	// Pebble opens, when it would repeat a failed flush until it succeeds.
	strict atomic.Bool

	mu    sync.Mutex // guards files and ends
	files map[*guardFile]struct{}

	// ends is, for closed logs with reserved space, where that space begins to be
	// as new: what a log that recycles it has to know. See zeros.
	ends map[string]int64

	zeroing sync.WaitGroup // of the goroutines of zeros

	// ledger is told of each sync of Pebble's logs and manifests. It is set before
	// Pebble opens.
	ledger *ledger
}

// errDown is what aside returns after a failure.
var errDown = errors.New("storage: the guard is down")

func newGuard(inner vfs.FS, relieve func() bool) *guard {
	return &guard{
		FS: inner, relieve: relieve,
		failed: make(chan struct{}), files: map[*guardFile]struct{}{},
		ends: map[string]int64{},
	}
}

// fail makes the guard failed with this cause, if it is not already.
func (g *guard) fail(cause error) {
	g.once.Do(func() {
		g.cause = cause
		g.down.Store(true)
		close(g.failed)
	})
}

// err returns nil, or the error that every call returns after a failure.
func (g *guard) err() error {
	select {
	case <-g.failed:
	default:
		return nil
	}
	return fmt.Errorf("%w: %w", ErrFailed, g.cause)
}

// abandon stops all writing for good, waits until none is under way, and closes
// all files.
func (g *guard) abandon() {
	g.fail(errClosed)
	g.closeFiles()
	g.zeroing.Wait() // none begins any more
}

func (g *guard) closeFiles() {
	g.writing.Lock()
	defer g.writing.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	for f := range g.files {
		_ = f.File.Close() // whatever it says, nothing depends on it any more
	}
	g.files = nil
}

// park never returns.
func park() { select {} }

// do runs a mutation of name. retry says whether it can be repeated once there
// is room.
func (g *guard) do(op, name string, retry bool, f func() error) error {
	g.writing.RLock()
	if g.down.Load() {
		g.writing.RUnlock()
		park()
	}
	err := f()
	if isFull(err) && g.relieve() && retry {
		err = f()
	}
	if err == nil {
		g.writing.RUnlock()
		return nil
	}
	if g.survivable(name, err) {
		g.writing.RUnlock()
		time.Sleep(spaceInterval) // Pebble tries again at once
		return err
	}
	g.blame(op, name, err)
	g.writing.RUnlock()
	park()
	return nil
}

// blame makes the guard failed by what was done to a file, if it is not already.
func (g *guard) blame(op, name string, err error) {
	if path := (*fs.PathError)(nil); !errors.As(err, &path) {
		err = fmt.Errorf("%s %s: %w", op, name, err)
	}
	g.fail(err)
}

// survivable reports whether Pebble handles the error by itself: a table file
// that does not fit makes a flush, a compaction or an ingestion fail, and the
// first two are repeated later.
func (g *guard) survivable(name string, err error) bool {
	return isFull(err) && !g.strict.Load() && strings.HasSuffix(name, ".sst")
}

// isFull reports whether err says that the disk, or a quota on it, is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func (g *guard) track(f vfs.File, name string) vfs.File {
	gf := &guardFile{File: f, guard: g, name: name}
	_, gf.listed = parseLogFile(g.PathBase(name))
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.files == nil { // abandoned meanwhile
		_ = f.Close()
		return gf
	}
	g.files[gf] = struct{}{}
	return gf
}

// opening runs an operation that yields a file for writing.
func (g *guard) opening(op, name string, f func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	err := g.do(op, name, true, func() (err error) {
		if file, err = f(); err == nil {
			file = g.track(file, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return file, nil
}

// Create implements vfs.FS.
func (g *guard) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.settle(name); err != nil {
		return nil, err
	}
	g.strike(name)
	f, err := g.opening("create", name, func() (vfs.File, error) { return g.FS.Create(name, c) })
	if err != nil || !isLog(name) {
		return f, err
	}
	f.(*guardFile).zeros = newZeros(g, name, 0)
	return f, nil
}

// OpenReadWrite implements vfs.FS.
func (g *guard) OpenReadWrite(
	name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption,
) (vfs.File, error) {
	return g.opening("open", name, func() (vfs.File, error) {
		return g.FS.OpenReadWrite(name, c, opts...)
	})
}

// ReuseForWrite implements vfs.FS.
func (g *guard) ReuseForWrite(
	oldname, newname string, c vfs.DiskWriteCategory,
) (vfs.File, error) {
	g.strike(oldname)
	g.strike(newname)
	f, err := g.opening("reuse", newname, func() (vfs.File, error) {
		return g.FS.ReuseForWrite(oldname, newname, c)
	})
	if err != nil {
		return nil, err
	}
	if end, ok := g.forget(oldname); ok {
		f.(*guardFile).zeros = newZeros(g, newname, end)
	}
	return f, nil
}

// forget returns what ends has for name, and takes it out.
func (g *guard) forget(name string) (end int64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	end, ok = g.ends[name]
	delete(g.ends, name)
	return end, ok
}

// strike makes the ledger forget a file that will not be what it was.
func (g *guard) strike(name string) {
	if g.ledger != nil {
		g.ledger.strike(name)
	}
}

// Open implements vfs.FS.
func (g *guard) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := g.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	return g.track(f, name), nil
}

// OpenDir implements vfs.FS.
func (g *guard) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return g.track(f, name), nil
}

// Rename implements vfs.FS.
func (g *guard) Rename(oldname, newname string) error {
	return g.do("rename", newname, true, func() error { return g.FS.Rename(oldname, newname) })
}

// MkdirAll implements vfs.FS.
func (g *guard) MkdirAll(dir string, perm os.FileMode) error {
	return g.do("mkdir", dir, true, func() error { return g.FS.MkdirAll(dir, perm) })
}

// Link implements vfs.FS. Its errors go back: Pebble then copies the file.
func (g *guard) Link(oldname, newname string) error {
	return g.harmless(func() error { return g.FS.Link(oldname, newname) })
}

// Remove implements vfs.FS. Its errors go back: a file that should be gone is
// removed by the next Open.
func (g *guard) Remove(name string) error {
	if err := g.settle(name); err != nil {
		return err
	}
	g.strike(name)
	g.forget(name)
	return g.harmless(func() error { return g.FS.Remove(name) })
}

// RemoveAll implements vfs.FS.
func (g *guard) RemoveAll(name string) error {
	return g.harmless(func() error { return g.FS.RemoveAll(name) })
}

// settle syncs the directory before a marker in it is made or removed. A marker
// is a file whose name says which manifest is the current one. Pebble v2.1.7
// makes the manifest and its marker, removes the old marker, and syncs the
// directory once, at the end: a power cut before that may leave a marker without
// its manifest (cockroachdb/pebble#5825), or no marker at all, which reads as a
// new database.
func (g *guard) settle(name string) error {
	if !strings.HasPrefix(g.PathBase(name), "marker.") {
		return nil
	}
	return syncDir(g, g.PathDir(name))
}

// Lock implements vfs.FS. It locks nothing: Disk holds the lock itself, so that
// it can give it back although Pebble is parked.
func (g *guard) Lock(string) (io.Closer, error) { return nopCloser{}, nil }

type nopCloser struct{}

func (nopCloser) Close() error { return nil }

// harmless runs a mutation whose failure Pebble takes as an answer.
func (g *guard) harmless(f func() error) error {
	g.writing.RLock()
	if g.down.Load() {
		g.writing.RUnlock()
		park()
	}
	defer g.writing.RUnlock()
	return f()
}

// aside runs a mutation that is the guard's own. After a failure it returns
// errDown: only Pebble is parked.
func (g *guard) aside(f func() error) error {
	g.writing.RLock()
	defer g.writing.RUnlock()
	if g.down.Load() {
		return errDown
	}
	return f()
}

// Unwrap implements vfs.FS.
func (g *guard) Unwrap() vfs.FS { return g.FS }

// A guardFile is an open file of a guard.
type guardFile struct {
	vfs.File
	guard  *guard
	name   string
	listed bool   // in the ledger
	zeros  *zeros // nil: not a log that is written
	end    int64  // of what was written by Write
}

// Write implements vfs.File. What a full disk took of the bytes is not written
// again after relief.
func (f *guardFile) Write(p []byte) (n int, err error) {
	f.end += int64(len(p))
	if f.zeros != nil {
		f.zeros.claim(f.end)
	}
	err = f.guard.do("write", f.name, true, func() error {
		m, err := f.File.Write(p[n:])
		n += m
		return err
	})
	return n, err
}

// WriteAt implements vfs.File.
func (f *guardFile) WriteAt(p []byte, off int64) (n int, err error) {
	if f.zeros != nil {
		f.zeros.claim(off + int64(len(p)))
	}
	err = f.guard.do("write", f.name, true, func() error {
		m, err := f.File.WriteAt(p[n:], off+int64(n))
		n += m
		return err
	})
	return n, err
}

// Preallocate implements vfs.File. Pebble reserves space for its log without
// changing the file's size, so every append changes it, and every sync has to
// write the file's metadata as well. Reserved as part of the size, a sync was a
// quarter to a third faster on ext4, and zeros can be written there.
func (f *guardFile) Preallocate(offset, length int64) error {
	return f.guard.harmless(func() error {
		if f.zeros != nil && reserve(f.File, offset, length) == nil {
			f.zeros.reserve(offset + length)
			return nil
		}
		return f.File.Preallocate(offset, length)
	})
}

// Sync implements vfs.File.
func (f *guardFile) Sync() error {
	return f.synced(f.guard.do("sync", f.name, false, f.File.Sync))
}

// SyncData implements vfs.File.
func (f *guardFile) SyncData() error {
	return f.synced(f.guard.do("sync", f.name, false, f.File.SyncData))
}

// synced tells the ledger of a sync that went well.
func (f *guardFile) synced(err error) error {
	if err == nil && f.listed && f.guard.ledger != nil {
		f.guard.ledger.note(f.name, f.end)
	}
	return err
}

// SyncTo implements vfs.File.
func (f *guardFile) SyncTo(length int64) (fullSync bool, err error) {
	err = f.guard.do("sync", f.name, false, func() (err error) {
		fullSync, err = f.File.SyncTo(length)
		return err
	})
	return fullSync, err
}

// Close implements vfs.File.
func (f *guardFile) Close() error {
	if f.zeros != nil {
		f.zeros.close()
	}
	f.guard.mu.Lock()
	_, open := f.guard.files[f]
	delete(f.guard.files, f)
	f.guard.mu.Unlock()
	if !open { // abandon has closed it
		return nil
	}
	return f.guard.do("close", f.name, false, f.File.Close)
}
