package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A reservingFS makes a file system in memory more like that of a real disk: a
// log's space is reserved as part of its size, so zeros are written ahead of its
// end, and to read from a file that was closed, as abandon may do under Pebble, is
// an error. It panics if anything is where zeros are written.
type reservingFS struct {
	vfs.FS
	zero func(off int64, n int) // if not nil, called before zeros are written
}

func (r reservingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := r.FS.Create(name, c)
	return r.wrap(name, f, err)
}

func (r reservingFS) ReuseForWrite(
	oldname, newname string, c vfs.DiskWriteCategory,
) (vfs.File, error) {
	f, err := r.FS.ReuseForWrite(oldname, newname, c)
	return r.wrap(newname, f, err)
}

func (r reservingFS) OpenReadWrite(
	name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption,
) (vfs.File, error) {
	f, err := r.FS.OpenReadWrite(name, c, opts...)
	return r.wrap(name, f, err)
}

func (r reservingFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := r.FS.Open(name, opts...)
	return r.wrap("", f, err)
}

func (r reservingFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	f = &closedFile{File: f}
	if isLog(name) {
		f = &reservedFile{File: f, zero: r.zero}
	}
	return f, nil
}

// A closedFile returns an error where a file in memory panics.
type closedFile struct {
	vfs.File
	mu     sync.RWMutex
	closed bool
}

func (f *closedFile) read(read func() (int, error)) (int, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return 0, fs.ErrClosed
	}
	return read()
}

func (f *closedFile) Read(p []byte) (int, error) {
	return f.read(func() (int, error) { return f.File.Read(p) })
}

func (f *closedFile) ReadAt(p []byte, off int64) (int, error) {
	return f.read(func() (int, error) { return f.File.ReadAt(p, off) })
}

func (f *closedFile) Stat() (info vfs.FileInfo, err error) {
	_, err = f.read(func() (_ int, err error) {
		info, err = f.File.Stat()
		return 0, err
	})
	return info, err
}

func (f *closedFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	return f.File.Close()
}

type reservedFile struct {
	vfs.File
	zero func(off int64, n int)
}

// Fd makes Pebble reserve space. Nothing else is done with it.
func (f *reservedFile) Fd() uintptr { return 1 << 20 }

// Extend implements extender.
func (f *reservedFile) Extend(offset, length int64) error {
	info, err := f.File.Stat()
	if err != nil || info.Size() >= offset+length {
		return err
	}
	_, err = f.File.WriteAt([]byte{0}, offset+length-1)
	return err
}

// WriteAt writes zeros; nobody else uses it.
func (f *reservedFile) WriteAt(p []byte, off int64) (int, error) {
	if f.zero != nil {
		f.zero(off, len(p))
	}
	f.mustBeZero(off, len(p))
	n, err := f.File.WriteAt(p, off)
	f.mustBeZero(off, len(p)) // the log may not write there before this returns
	return n, err
}

func (f *reservedFile) mustBeZero(off int64, n int) {
	buf := make([]byte, n)
	if _, err := f.File.ReadAt(buf, off); err != nil && !errors.Is(err, io.EOF) {
		panic(err)
	}
	if i := bytes.IndexFunc(buf, func(r rune) bool { return r != 0 }); i >= 0 {
		panic(fmt.Sprintf("zeros over the log at %d", off+int64(i)))
	}
}

// A zeroLog is a log file in a guard, and what it should read as.
type zeroLog struct {
	t     *testing.T
	g     *guard
	name  string
	f     vfs.File
	image []byte
	pos   int
}

const zeroLogBytes = 1 << 20 // chunks of 8 KiB

func newZeroLog(t *testing.T, fs vfs.FS, name string) *zeroLog {
	t.Helper()
	l := &zeroLog{t: t, g: newGuard(fs, func() bool { return false }), name: name}
	f, err := l.g.Create(name, "")
	if err != nil {
		t.Fatal(err)
	}
	l.begin(f)
	return l
}

// begin does as Pebble does, which reserves space after the first write.
func (l *zeroLog) begin(f vfs.File) {
	l.t.Helper()
	l.f, l.pos = f, 0
	l.write(1)
	if err := f.Preallocate(0, zeroLogBytes); err != nil {
		l.t.Fatal(err)
	}
}

// write writes n bytes that are not zero.
func (l *zeroLog) write(n int) {
	l.t.Helper()
	p := bytes.Repeat([]byte{byte(l.pos%255) + 1}, n)
	if grow := l.pos + n - len(l.image); grow > 0 {
		l.image = append(l.image, make([]byte, grow)...)
	}
	copy(l.image[l.pos:], p)
	l.pos += n
	if _, err := l.f.Write(p); err != nil { // which may change p
		l.t.Error(err)
	}
}

// recycle ends the log and begins another in its file.
func (l *zeroLog) recycle(name string) {
	l.t.Helper()
	mustClose(l.t, l.f)
	f, err := l.g.ReuseForWrite(l.name, name, "")
	if err != nil {
		l.t.Fatal(err)
	}
	l.name = name
	l.begin(f)
}

// check compares all of the file.
func (l *zeroLog) check() {
	l.t.Helper()
	f, err := l.g.FS.Open(l.name)
	if err != nil {
		l.t.Fatal(err)
	}
	defer ignoreClose(f)
	got, err := io.ReadAll(f)
	if err != nil {
		l.t.Fatal(err)
	}
	if len(got) < len(l.image) || !bytes.Equal(got[:len(l.image)], l.image) {
		l.t.Error("the log is not what was written")
	}
	if len(bytes.Trim(got[min(len(got), len(l.image)):], "\x00")) > 0 {
		l.t.Error("there is something after the end of the log")
	}
}

// TestZerosRace: a log that is written as fast as can be, and recycled before
// its end or after, is never changed by zeros.
func TestZerosRace(t *testing.T) {
	for name, open := range map[string]func() (vfs.FS, string){
		"memory": func() (vfs.FS, string) { return reservingFS{FS: vfs.NewMem()}, "" },
		"disk":   func() (vfs.FS, string) { return vfs.Default, t.TempDir() },
	} {
		for seed := range uint64(4 * *rounds) {
			rng := rand.New(rand.NewPCG(seed, 9))
			fs, dir := open()
			l := newZeroLog(t, fs, filepath.Join(dir, "000001.log"))
			for life := 2; life < 8; life++ {
				end := rng.IntN(zeroLogBytes + 1)
				for l.pos < end {
					l.write(1 + rng.IntN(1<<uint(1+rng.IntN(15))))
					if rng.IntN(16) == 0 {
						if err := l.f.SyncData(); err != nil {
							t.Fatal(err)
						}
					}
				}
				l.check()
				l.recycle(filepath.Join(dir, fmt.Sprintf("%06d.log", life)))
			}
			l.check()
			l.g.abandon()
			l.check()
			if t.Failed() {
				t.Fatalf("%s, seed %d", name, seed)
			}
		}
	}
}

// A region is where zeros were written.
type region struct {
	off int64
	n   int
}

// TestZerosAhead: how far they go, that the log meets them as it grows, that it
// waits for a chunk that is being written, and only for that, and that a recycled
// log gets them where its file is new.
func TestZerosAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []region
		gate := make(chan struct{})
		var gated atomic.Bool
		fs := reservingFS{FS: vfs.NewMem(), zero: func(off int64, n int) {
			mu.Lock()
			got = append(got, region{off, n})
			mu.Unlock()
			if gated.Load() {
				<-gate
			}
		}}
		l := newZeroLog(t, fs, "000001.log")
		synctest.Wait()
		if len(got) > 0 {
			t.Errorf("zeros before the log has begun: %v", got)
		}
		const size = zeroLogBytes / 128
		var want []region
		expect := func(what string, from, to int64) {
			t.Helper()
			synctest.Wait()
			for ; from < to; from += size {
				want = append(want, region{from, size})
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", what, got, want)
			}
			l.check()
		}
		l.write(100) // past the first block, and a chunk between
		expect("first", 4096+size, 4096+9*size)
		l.write(size) // a little more than a piece is left
		expect("near", 0, 0)
		l.write(4096)
		expect("nearer", 4096+9*size, 4096+17*size)

		gated.Store(true)
		l.write(8 * size)
		expect("being written", 4096+17*size, 4096+18*size)
		var wrote atomic.Bool
		l.write(4096 + 17*size - l.pos) // up to the chunk
		done := make(chan struct{})
		go func() {
			l.write(1)
			wrote.Store(true)
			close(done)
		}()
		synctest.Wait()
		if wrote.Load() {
			t.Error("the log was written where zeros are being written")
		}
		gated.Store(false)
		close(gate)
		<-done
		synctest.Wait()
		l.check()

		end := roundUp(max(int64(l.pos), got[len(got)-1].off+size))
		l.recycle("000002.log")
		want = slices.Clone(got)
		l.write(int(end) - 9*size)
		expect("recycled, old part", 0, 0)
		l.write(2 * size)
		expect("recycled, new part", end, end+8*size)
		l.g.abandon()
		l.check()
	})
}

// TestZerosFault: no space for zeros means no zeros, and any other error is the
// disk's.
func TestZerosFault(t *testing.T) {
	for _, c := range []struct {
		kind errorfs.OpKind
		err  error
		fail bool
	}{
		{errorfs.OpFileWriteAt, syscall.ENOSPC, false},
		{errorfs.OpFileWriteAt, syscall.EDQUOT, false},
		{errorfs.OpFileWriteAt, syscall.EIO, true},
		{errorfs.OpFileSyncTo, syscall.EIO, true},
		{errorfs.OpFileSyncData, syscall.EIO, true},
		{errorfs.OpFileSyncData, syscall.ENOSPC, true},
		{errorfs.OpCreate, syscall.EMFILE, false},
		{errorfs.OpOpen, syscall.EMFILE, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var armed atomic.Bool
			wrote := make(chan struct{})
			hits := 0
			inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
				if armed.Load() && op.Kind == c.kind {
					<-wrote // or the guard might be down before the write, and park it
					hits++
					return c.err
				}
				return nil
			})
			l := newZeroLog(t, reservingFS{FS: errorfs.Wrap(vfs.NewMem(), inject)}, "1.log")
			armed.Store(true)
			l.write(100)
			close(wrote)
			synctest.Wait()
			armed.Store(false)
			err := l.g.err()
			if failed := errors.Is(err, ErrFailed); failed != c.fail || failed && !errors.Is(err, c.err) {
				t.Errorf("kind %d, %v: %v", c.kind, c.err, err)
			}
			if !c.fail {
				for range 100 {
					l.write(zeroLogBytes / 100)
				}
				l.check()
			}
			synctest.Wait()
			if hits > 1 {
				t.Errorf("kind %d, %v: tried %d times", c.kind, c.err, hits)
			}
			l.g.abandon()
		})
	}
}

// TestZerosAbandon: after abandon nothing is written, and Close waits.
func TestZerosAbandon(t *testing.T) {
	for name, end := range map[string]func(l *zeroLog){
		"abandon": func(l *zeroLog) { l.g.abandon() },
		"close":   func(l *zeroLog) { mustClose(l.t, l.f) },
	} {
		begun, gate := make(chan struct{}), make(chan struct{})
		var ended, bad atomic.Bool
		var once sync.Once
		fs := reservingFS{FS: vfs.NewMem(), zero: func(int64, int) {
			once.Do(func() { close(begun) })
			<-gate
			bad.Store(bad.Load() || ended.Load())
		}}
		l := newZeroLog(t, fs, "1.log")
		l.write(100)
		<-begun
		go func() {
			if name == "abandon" {
				<-l.g.failed
			}
			close(gate)
		}()
		end(l)
		ended.Store(true)
		l.g.abandon()
		if bad.Load() {
			t.Errorf("%s: zeros are written after it", name)
		}
		l.check()
	}
}

// TestZerosNotInOpen: opening a directory does not wait for zeros, and the first
// Appends begin them. (Pebble reserves space with the second write of a log.)
func TestZerosNotInOpen(t *testing.T) {
	var opening atomic.Bool
	var written, early atomic.Int64
	cfg := testConfig(vfs.NewMem())
	cfg.FS = reservingFS{FS: cfg.FS.(reservingFS).FS, zero: func(int64, int) {
		written.Add(1)
		if opening.Load() {
			early.Add(1)
		}
	}}
	mustClose(t, mustBootstrap(t, cfg))
	opening.Store(true)
	d := mustOpen(t, cfg)
	opening.Store(false)
	before := written.Load()
	for i := range uint64(2) {
		if err := d.Append(entries(1+i, 2+i, 1), nil, true); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { return written.Load() > before })
	mustClose(t, d)
	if n := early.Load(); n > 0 {
		t.Errorf("%d chunks of zeros were written by Open", n)
	}
}

// TestZerosUnsupported: where space cannot be reserved there are no zeros.
func TestZerosUnsupported(t *testing.T) {
	mem := vfs.NewMem()
	inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWriteAt && strings.HasSuffix(op.Path, ".log") {
			return syscall.EOPNOTSUPP
		}
		return nil
	})
	d := mustBootstrap(t, testConfig(errorfs.Wrap(mem, inject)))
	for i := range uint64(9) {
		if err := d.Append(entries(1+i, 2+i, 1), nil, true); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, d)
}
