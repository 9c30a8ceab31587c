package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A change is a mutation that Pebble may ask of the guard.
type change struct {
	name string
	kind errorfs.OpKind
	do   func(g *guard, name string, f vfs.File) error
	// harmless says that its failure is Pebble's to handle, retried that it is tried once more when
	// there was no room.
	harmless, retried bool
}

var changes = []change{
	{"create", errorfs.OpCreate, func(g *guard, name string, _ vfs.File) error {
		_, err := g.Create(name, "")
		return err
	}, false, true},
	{"open", errorfs.OpOpen, func(g *guard, name string, _ vfs.File) error {
		_, err := g.OpenReadWrite(name, "")
		return err
	}, false, true},
	{"reuse", errorfs.OpReuseForWrite, func(g *guard, name string, _ vfs.File) error {
		_, err := g.ReuseForWrite(name, name, "")
		return err
	}, false, true},
	{"rename", errorfs.OpRename, func(g *guard, name string, _ vfs.File) error {
		return g.Rename(name, name)
	}, false, true},
	{"mkdir", errorfs.OpMkdirAll, func(g *guard, name string, _ vfs.File) error {
		return g.MkdirAll("d/"+name, os.ModePerm)
	}, false, true},
	{"write", errorfs.OpFileWrite, func(_ *guard, _ string, f vfs.File) error {
		_, err := f.Write([]byte("x"))
		return err
	}, false, true},
	{"write", errorfs.OpFileWriteAt, func(_ *guard, _ string, f vfs.File) error {
		_, err := f.WriteAt([]byte("x"), 0)
		return err
	}, false, true},
	{"sync", errorfs.OpFileSync, func(_ *guard, _ string, f vfs.File) error {
		return f.Sync()
	}, false, false},
	{"sync", errorfs.OpFileSyncData, func(_ *guard, _ string, f vfs.File) error {
		return f.SyncData()
	}, false, false},
	{"sync", errorfs.OpFileSyncTo, func(_ *guard, _ string, f vfs.File) error {
		_, err := f.SyncTo(1)
		return err
	}, false, false},
	{"link", errorfs.OpLink, func(g *guard, name string, _ vfs.File) error {
		return g.Link(name, name+"2")
	}, true, false},
	{"remove", errorfs.OpRemove, func(g *guard, name string, _ vfs.File) error {
		return g.Remove(name)
	}, true, false},
	{"remove all", errorfs.OpRemoveAll, func(g *guard, name string, _ vfs.File) error {
		return g.RemoveAll(name)
	}, true, false},
	{"preallocate", errorfs.OpFilePreallocate, func(_ *guard, _ string, f vfs.File) error {
		return f.Preallocate(0, 1)
	}, true, false},
}

// newTold returns a guard over a told file system with one file in it. made says whether there is
// room once that was asked for.
func newTold(t *testing.T, name string, made bool) (*toldFS, *guard, vfs.File) {
	t.Helper()
	told := newToldFS()
	g := newGuard(told, func() bool { return made })
	f, err := g.Create(name, "")
	if err != nil {
		t.Fatal(err)
	}
	return told, g, f
}

// parks says whether f is parked, rather than comes back.
func parks(t *testing.T, f func()) bool {
	t.Helper()
	before, came := parked(t), false
	back := make(chan struct{})
	go func() {
		defer close(back)
		f()
	}()
	eventually(t, func() bool {
		select {
		case <-back:
			came = true
		default:
		}
		return came || parked(t) > before
	})
	return !came
}

// parked counts the goroutines that parks began and that are parked: the profile has each stack
// once, behind the number of those that have it.
func parked(t *testing.T) (n int) {
	t.Helper()
	var profile strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		t.Fatal(err)
	}
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(stack, "storage.park+") || !strings.Contains(stack, "storage.parks.") {
			continue
		}
		number, _, _ := strings.Cut(stack, " @")
		m, err := strconv.Atoi(number[strings.LastIndex(number, "\n")+1:])
		if err != nil {
			t.Fatalf("%v in %s", err, stack)
		}
		n += m
	}
	return n
}

// TestGuardFails: a mutation that fails never comes back, nor does any that follows, and nothing
// more reaches the disk. The failure says what was done to which file, once. Of those that Pebble
// can do without, the error comes back.
func TestGuardFails(t *testing.T) {
	for _, c := range changes {
		for _, cause := range []error{
			syscall.EIO, &fs.PathError{Op: "pwrite", Path: "000001.log", Err: syscall.EIO},
		} {
			told, g, f := newTold(t, "1.x", true)
			told.failAll(cause)
			var err error
			parked := parks(t, func() { err = c.do(g, "1.x", f) })
			if n := told.count(c.kind); n != 1 {
				t.Errorf("%s: tried %d times", c.name, n)
			}
			if c.harmless {
				if parked || !errors.Is(err, syscall.EIO) || g.err() != nil {
					t.Errorf("%s: parked: %v; %v; %v", c.name, parked, err, g.err())
				}
				continue
			}
			text := c.name + " 1.x: " + cause.Error()
			if cause != syscall.EIO {
				text = "pwrite 000001.log: " + syscall.EIO.Error()
			}
			err = g.err()
			if !parked || !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) ||
				strings.Replace(err.Error(), "d/", "", 1) != ErrFailed.Error()+": "+text {
				t.Errorf("%s: parked: %v; %q, want %q", c.name, parked, err, text)
			}
		}
	}
	told, g, f := newTold(t, "1.x", true)
	told.failAll(nil)
	g.fail(syscall.EIO)
	g.fail(errClosed) // the first cause is that which counts
	for _, c := range changes {
		if !parks(t, func() { _ = c.do(g, "1.x", f) }) {
			t.Errorf("%s: comes back from a guard that has failed", c.name)
		}
		if !g.writing.TryLock() {
			t.Fatalf("%s: abandon would wait for what is parked", c.name)
		}
		g.writing.Unlock()
	}
	if err := g.aside(func() error { return os.ErrInvalid }); !errors.Is(err, errDown) {
		t.Errorf("aside: %v", err)
	}
	if len(told.told) > 0 || !errors.Is(g.err(), syscall.EIO) {
		t.Errorf("after the failure: %v, %v", told.told, g.err())
	}
}

// TestGuardFull: what finds the disk full is tried once more if there is room now, but no sync. If
// that does not help it is a failure, but for table files, once Pebble has opened: the error comes
// back, after a pause in which abandon need not wait.
func TestGuardFull(t *testing.T) {
	for _, c := range changes {
		if c.harmless {
			continue
		}
		for _, made := range []bool{false, true} {
			told, g, f := newTold(t, "1.x", made)
			told.fail = func(op errorfs.Op) error {
				if told.fail = nil; op.Kind == c.kind {
					return syscall.EDQUOT
				}
				return nil
			}
			told.told = nil
			parked := parks(t, func() { _ = c.do(g, "1.x", f) })
			want := 1
			if made && c.retried {
				want = 2
			}
			if n := told.count(c.kind); n != want || parked != (want == 1) {
				t.Errorf("%s, room %v: tried %d times, parked: %v", c.name, made, n, parked)
			}
		}
		for name, strict := range map[string]bool{"1.sst": false, "1.log": false, "2.sst": true} {
			told, g, f := newTold(t, name, false)
			told.failAll(syscall.ENOSPC)
			g.strict.Store(strict)
			if name != "1.sst" {
				if !parks(t, func() { _ = c.do(g, name, f) }) {
					t.Errorf("%s of %s, strict %v: comes back", c.name, name, strict)
				}
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				done := make(chan error, 1)
				go func() { done <- c.do(g, name, f) }()
				synctest.Wait()
				if !g.writing.TryLock() {
					t.Errorf("%s: abandon would wait for the pause", c.name)
				} else {
					g.writing.Unlock()
				}
				err := <-done
				if !errors.Is(err, syscall.ENOSPC) || g.err() != nil || time.Since(began) != spaceInterval {
					t.Errorf("%s: %v, %v after %v", c.name, err, g.err(), time.Since(began))
				}
			})
		}
		told, g, f := newTold(t, "1.sst", false)
		told.failAll(syscall.EIO)
		if !parks(t, func() { _ = c.do(g, "1.sst", f) }) {
			t.Errorf("%s: a table file that cannot be written is survived", c.name)
		}
	}
}

// TestGuardWrites: what a full disk took of a write is not written again, wherever it goes.
func TestGuardWrites(t *testing.T) {
	told, g, _ := newTold(t, "1.x", true)
	f := g.track(&shortFile{File: mustCreate(t, told.mem, "2.x")}, "2.x")
	if n, err := f.Write([]byte("abcdef")); n != 6 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	f.(*guardFile).File.(*shortFile).wrote = false
	if n, err := f.WriteAt([]byte("ghij"), 4); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got := string(contents(t, told.mem, "2.x")); got != "abcdghij" {
		t.Errorf("the file is %q", got)
	}
	if full, err := f.SyncTo(3); !full || err != nil {
		t.Errorf("synced to 3: all of it: %v, %v", full, err)
	}
	log := mustCreate(t, g, "3.log")
	if _, err := log.WriteAt([]byte("abcd"), 10); err != nil {
		t.Fatal(err)
	}
	if z := log.(*guardFile).zeros; z.claimed != 14 {
		t.Errorf("zeros may come behind %d, and 14 bytes are written", z.claimed)
	}
}

// TestGuardAbandon: after abandon all files are closed, those that are opened later as well, and to
// close one again is no error.
func TestGuardAbandon(t *testing.T) {
	g := newGuard(reservingFS{FS: vfs.NewMem()}, func() bool { return false })
	before, f := mustCreate(t, g, "2.x"), mustCreate(t, g, "1.x")
	mustClose(t, before)
	if _, err := before.Stat(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a file that was closed is open: %v", err)
	}
	g.abandon()
	late, err := g.Open("1.x")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []vfs.File{f, late} {
		if _, err := f.Stat(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("a file is open: %v", err)
		}
		mustClose(t, f)
	}
	synctest.Test(t, func(t *testing.T) { // there is a pause
		g := newGuard(vfs.NewMem(), func() bool { return false })
		f := g.track(&shortFile{File: mustCreate(t, g, "3.sst")}, "3.sst")
		if err := f.Close(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a table file that does not fit is closed: %v", err)
		}
	})
}

// TestGuardAbandonWaits: abandon comes back when the file that zeros are written to is closed too.
func TestGuardAbandonWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		l := newZeroLog(t, slowCloseFS{reservingFS{FS: vfs.NewMem()}, gate}, "1.log")
		l.write(100)
		synctest.Wait()
		var done atomic.Bool
		go func() {
			l.g.abandon()
			done.Store(true)
		}()
		synctest.Wait()
		if done.Load() {
			t.Error("abandon does not wait for the zeros")
		}
		close(gate)
		synctest.Wait()
		if !done.Load() {
			t.Error("abandon does not come back")
		}
	})
}

// A slowCloseFS closes files that are opened for writing when its gate is open.
type slowCloseFS struct {
	reservingFS
	gate chan struct{}
}

func (s slowCloseFS) OpenReadWrite(
	name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption,
) (vfs.File, error) {
	f, err := s.reservingFS.OpenReadWrite(name, c, opts...)
	return slowCloseFile{f, s.gate}, err
}

type slowCloseFile struct {
	vfs.File
	gate chan struct{}
}

func (f slowCloseFile) Close() error {
	<-f.gate
	return f.File.Close()
}

// TestGuardMarkers: the directory is synced before a marker in it is made or removed, and only
// then. If that cannot be done, nothing is.
func TestGuardMarkers(t *testing.T) {
	remove := func(g *guard, name string) error { return g.Remove(name) }
	create := func(g *guard, name string) error {
		_, err := g.Create(name, "")
		return err
	}
	for _, c := range []struct {
		name  string
		do    func(g *guard, name string) error
		kind  errorfs.OpKind
		syncs bool
	}{
		{"marker.manifest.000002.MANIFEST-000005", create, errorfs.OpCreate, true},
		{"marker.manifest.000002.MANIFEST-000005", remove, errorfs.OpRemove, true},
		{"000005.sst", create, errorfs.OpCreate, false},
		{"000005.sst", remove, errorfs.OpRemove, false},
	} {
		told, g, _ := newTold(t, c.name, true)
		told.told = nil
		if err := c.do(g, c.name); err != nil {
			t.Fatal(err)
		}
		want := []errorfs.OpKind{c.kind}
		if c.syncs {
			want = []errorfs.OpKind{errorfs.OpOpenDir, errorfs.OpFileSync, c.kind}
		}
		got := slices.DeleteFunc(told.told, func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileClose
		})
		if !slices.EqualFunc(got, want, func(op errorfs.Op, k errorfs.OpKind) bool {
			return op.Kind == k
		}) {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
		if !c.syncs {
			continue
		}
		told.failAll(nil)
		told.fail = func(op errorfs.Op) error {
			if op.Kind == errorfs.OpOpenDir {
				return syscall.EMFILE
			}
			return nil
		}
		if err := c.do(g, c.name); !errors.Is(err, syscall.EMFILE) || told.count(c.kind) > 0 {
			t.Errorf("%s without its directory: %v, %v", c.name, err, told.told)
		}
	}
}

// TestGuardZeros: only logs have zeros: a new one from its beginning, one that is recycled from
// where the file is new, and none if that is not known. A file that is removed is forgotten.
func TestGuardZeros(t *testing.T) {
	told, g, f := newTold(t, "1.sst", true)
	if f.(*guardFile).zeros != nil {
		t.Error("a table file has zeros")
	}
	mustCreate(t, told.mem, "1.log")
	reuse := func(from, to string) *zeros {
		f, err := g.ReuseForWrite(from, to, "")
		if err != nil {
			t.Fatal(err)
		}
		return f.(*guardFile).zeros
	}
	if reuse("1.log", "2.log") != nil {
		t.Error("a log has zeros, and it is not known where its file is new")
	}
	g.ends["2.log"], g.ends["9.log"] = 4096, 8192
	if z := reuse("2.log", "3.log"); z == nil || z.frontier != 4096 {
		t.Errorf("the zeros of a recycled log: %+v", z)
	}
	mustCreate(t, told.mem, "9.log")
	if err := g.Remove("9.log"); err != nil || len(g.ends) > 0 {
		t.Errorf("known of logs that are gone: %v, %v", g.ends, err)
	}
}

// TestGuardReserves: a file's space is reserved as Pebble wants it where it is no log, or cannot be
// reserved otherwise.
func TestGuardReserves(t *testing.T) {
	for name, full := range map[string]bool{"1.sst": false, "1.log": false, "2.log": true} {
		told := newToldFS()
		g := newGuard(reservingFS{FS: told}, func() bool { return false })
		f := mustCreate(t, g, name)
		if full {
			told.fail = func(op errorfs.Op) error {
				if op.Kind == errorfs.OpFileWriteAt {
					return syscall.EOPNOTSUPP
				}
				return nil
			}
		}
		if err := f.Preallocate(0, 1<<20); err != nil {
			t.Fatal(err)
		}
		want := 1
		if name == "1.log" {
			want = 0
		}
		if n := told.count(errorfs.OpFilePreallocate); n != want {
			t.Errorf("%s: reserved by Pebble %d times, want %d", name, n, want)
		}
		if z := f.(*guardFile).zeros; want == 0 && z.limit != 1<<20 {
			t.Errorf("zeros are written up to %d", z.limit)
		}
		g.abandon()
	}
	g := newGuard(vfs.NewMem(), nil)
	f := g.track(&reservedFile{File: mustCreate(t, g.FS, "3.sst")}, "3.sst")
	if err := f.Preallocate(0, 1<<20); err != nil {
		t.Error(err)
	}
}

// TestGuardOpens: what is not there cannot be opened, and the error says so.
func TestGuardOpens(t *testing.T) {
	g := newGuard(vfs.NewMem(), func() bool { return false })
	_, err := g.Open("no")
	_, err2 := g.OpenDir("no/dir")
	if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err2, fs.ErrNotExist) || len(g.files) > 0 {
		t.Error(fmt.Sprint(err, err2, g.files))
	}
}
