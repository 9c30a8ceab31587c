package storage

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestZerosBounds: where zeros begin and end, and when there are enough of them, to the byte.
func TestZerosBounds(t *testing.T) {
	for n, want := range map[int64]int64{0: 0, 1: 4096, 4095: 4096, 4096: 4096, 4097: 8192} {
		if got := roundUp(n); got != want {
			t.Errorf("%d rounded up: %d, want %d", n, got, want)
		}
	}
	const size = 8 << 10
	ready := func(claimed, frontier, limit int64) *zeros {
		z := newZeros(nil, "1.log", frontier)
		z.claimed, z.limit, z.size = claimed, limit, size
		return z
	}
	for _, c := range []struct {
		name                     string
		claimed, frontier, limit int64
		short                    bool
		begin, n                 int64
	}{
		{"at the log's end", 4096, 4096, 1 << 20, true, 4096, size},
		{"behind it", 4097, 4096, 1 << 20, true, 2*4096 + size, size},
		{"a piece ahead", 4096, 4096 + 8*size, 1 << 20, true, 4096 + 8*size, size},
		{"a byte more", 4096, 4097 + 8*size, 1 << 20, false, 4097 + 8*size, size},
		{"near the limit", 0, 0, size - 1, true, 0, size - 1},
		{"at the limit", 0, size, size, false, size, 0},
		{"behind it, at the limit", size, 0, size + 1, true, 2 * size, 0},
	} {
		z := ready(c.claimed, c.frontier, c.limit)
		if z.short() != c.short {
			t.Errorf("%s: short is %v", c.name, !c.short)
		}
		begin, n := z.take()
		if begin != c.begin || n != c.n || (z.chunk == noChunk) != (n == 0) {
			t.Errorf("%s: %d bytes at %d, the log waits at %d", c.name, n, begin, z.chunk)
		}
		if n > 0 && z.frontier != begin+n || n == 0 && z.short() {
			t.Errorf("%s: then the zeros end at %d", c.name, z.frontier)
		}
	}
	z := ready(0, 0, 1<<20)
	z.guard = newGuard(vfs.NewMem(), nil)
	z.guard.strict.Store(true)
	z.claim(100)
	z.claim(50)
	if z.claimed != 100 || len(z.wake) > 0 {
		t.Errorf("while Pebble opens: claimed %d, and %d wake-ups", z.claimed, len(z.wake))
	}
	z.guard.strict.Store(false)
	if z.claim(100); len(z.wake) != 1 {
		t.Error("the first write after Open does not begin the zeros")
	}
}

// TestZerosReserve: the space of a log only grows, and one goroutine writes its zeros. There is
// none where all of the file was written before. A log without reserved space is not kept in mind.
func TestZerosReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(vfs.NewMem(), nil)
		z := newZeros(g, "1.log", 8192)
		z.close()
		z = newZeros(g, "2.log", 8192)
		z.reserve(8192)
		if z.done != nil || len(g.ends) > 0 {
			t.Error("zeros are begun, and there is no room for them")
		}
		z.reserve(1 << 20)
		done := z.done
		z.reserve(1 << 19)
		if z.limit != 1<<20 || z.size != 8192 || z.done != done {
			t.Errorf("less is reserved: limit %d, chunks of %d", z.limit, z.size)
		}
		z.reserve(1 << 21)
		if z.limit != 1<<21 || z.size != 16384 || z.done != done {
			t.Errorf("more is reserved: limit %d, chunks of %d", z.limit, z.size)
		}
		z.close()
		if g.ends["2.log"] != 8192 {
			t.Errorf("of the closed log is known: %v", g.ends)
		}
	})
}

// TestZerosFile: the file of zeros is opened once, and closed with the log.
func TestZerosFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &countedFS{FS: vfs.NewMem()}
		l := newZeroLog(t, reservingFS{FS: fs}, "1.log")
		for range 3 {
			l.write(zeroLogBytes / 10)
			synctest.Wait()
		}
		if fs.opened.Load() != 2 || fs.open.Load() != 2 { // the log, and its zeros
			t.Errorf("%d files were opened, %d are open", fs.opened.Load(), fs.open.Load())
		}
		mustClose(t, l.f)
		if fs.open.Load() != 0 {
			t.Error("the file of the zeros is open after the log was closed")
		}
	})
}

// TestZerosFailure: the failure says that zeros were being written, and to which file.
func TestZerosFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := newToldFS()
		l := newZeroLog(t, reservingFS{FS: told}, "1.log")
		told.fail = func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSyncTo {
				return syscall.EIO
			}
			return nil
		}
		l.f.(*guardFile).zeros.claim(100) // a write after the failure would never return
		synctest.Wait()
		err := l.g.err()
		if err == nil || !strings.Contains(err.Error(), "write zeros to 1.log: input/output error") {
			t.Error(err)
		}
		l.g.abandon()
	})
}

// TestReserve: space is reserved as part of a file's size, where the system can, and it is said
// where it cannot.
func TestReserve(t *testing.T) {
	f := mustCreate(t, vfs.NewMem(), "1.log")
	defer mustClose(t, f)
	if err := reserve(f, 0, 1<<20); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("in memory: %v", err)
	}
	if runtime.GOOS != "linux" {
		return
	}
	name := filepath.Join(t.TempDir(), "1.log")
	f = mustCreate(t, vfs.Default, name)
	defer mustClose(t, f)
	if err := extend(f.Fd(), 0, 4096); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this file system cannot")
	}
	err := reserve(f, 4096, 4096)
	if info, err2 := os.Stat(name); err != nil || err2 != nil || info.Size() != 8192 {
		t.Errorf("on disk: %v, %v, %v", info, err, err2)
	}
	read, err := vfs.Default.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, read)
	if err := reserve(read, 0, 1<<20); err == nil {
		t.Error("space was reserved in a file that is only read")
	}
}
