package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3/raftpb"
)

// TestOpenFull: a directory whose log does not fit into table files is not opened, and is told what
// to do; with room it opens, and nothing is lost.
func TestOpenFull(t *testing.T) {
	full := newCutFS()
	d := mustBootstrap(t, testConfig(full))
	fillDisk(t, d, 50, 50)
	mustClose(t, d)
	full.full.Store(true)
	wantOpen(t, testConfig(full), ErrNoSpace, "free some space on the disk")
	full.full.Store(false)
	d = mustOpen(t, testConfig(full))
	if last, _ := d.LastIndex(); last != 2 {
		t.Errorf("the log ends at %d", last)
	}
	mustClose(t, d)
}

// TestOpenFaults: what fails before Pebble opens is told as what it is, once and with the advice
// that fits, and the directory can be opened afterwards.
func TestOpenFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		kind errorfs.OpKind
		path string
		err  error
		want error
	}{
		{"the directory cannot be made", errorfs.OpMkdirAll, "", syscall.ENOSPC, ErrNoSpace},
		{"it cannot be synced", errorfs.OpFileSync, "", syscall.EIO, ErrFailed},
		{"a snapshot's rest cannot be removed", errorfs.OpRemoveAll, "", syscall.EIO, ErrFailed},
		{"the lock cannot be made", errorfs.OpLock, "", &fs.PathError{
			Op: "open", Path: "LOCK", Err: syscall.EACCES,
		}, ErrFailed},
		{"the lock is held", errorfs.OpLock, "", syscall.EAGAIN, ErrLocked},
		{"the files cannot be listed", errorfs.OpList, "data/db", syscall.EIO, ErrFailed},
		{"the ledger cannot be opened", errorfs.OpOpen, "ledger", syscall.EMFILE, ErrFailed},
		{"Pebble cannot open a file", errorfs.OpOpen, "MANIFEST-", syscall.EMFILE, ErrFailed},
	} {
		told := newToldFS()
		if c.kind != errorfs.OpMkdirAll && c.kind != errorfs.OpFileSync {
			mustClose(t, mustBootstrap(t, testConfig(told)))
		}
		if strings.HasPrefix(c.path, "ledger") {
			if err := told.mem.Remove("data/ledger"); err != nil {
				t.Fatal(err)
			}
		}
		told.fail = func(op errorfs.Op) error {
			if op.Kind == c.kind && strings.Contains(op.Path, c.path) {
				return c.err
			}
			return nil
		}
		_, err := Open(testConfig(told))
		if !errors.Is(err, c.want) || errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
			continue
		}
		if strings.Count(err.Error(), c.want.Error()) != 1 || strings.Contains(err.Error(), "a copy") {
			t.Errorf("%s: the text is %q", c.name, err)
		}
		told.failAll(nil)
		mustClose(t, mustOpen(t, testConfig(told)))
	}
}

// TestOpenReads: whichever one read of the tables fails, Open or the reader says so, and what is
// not read is not taken for missing.
func TestOpenReads(t *testing.T) {
	var left atomic.Int64
	left.Store(1 << 40)
	mem := vfs.NewMem()
	cfg := testConfig(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") && left.Add(-1) == -1 {
			return syscall.EIO
		}
		return nil
	})))
	cfg.TailBytes = 1
	d := mustBootstrap(t, cfg)
	for i := range uint64(40) {
		e := entry(i+1, 1, strings.Repeat("x", 2000))
		if err := d.Append([]*raftpb.Entry{e}, hardState(1, 1, i+1), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeSnapshot(d, 10, 1, "a", strings.Repeat("b", 100_000), "c"); err != nil {
		t.Fatal(err)
	}
	want, wantSnap, err := observe(d)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
	mustClose(t, mustOpen(t, cfg)) // the log is in a table file now
	failed, all := 0, false
	for n := int64(0); !all; n++ {
		left.Store(n)
		d, err := Open(cfg)
		if err == nil {
			var got modelLog
			var snap modelSnap
			got, snap, err = observe(d)
			if err == nil && (!equalLog(got, want) || fmt.Sprint(snap) != fmt.Sprint(wantSnap)) {
				t.Errorf("after %d reads: %v and %v", n, got, snap)
			}
			all = left.Load() >= 0
			mustClose(t, d)
		}
		if err != nil && !errors.Is(err, syscall.EIO) {
			t.Errorf("after %d reads: %v", n, err)
		}
		if err != nil {
			failed++
		}
	}
	if failed < 5 {
		t.Errorf("%d reads failed", failed)
	}
}

// TestOpenMemory: of the log that is read, no more is kept in memory than was asked for. Sizes that
// are left open have their defaults, and others are taken.
func TestOpenMemory(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.TailBytes = 100
	d := mustBootstrap(t, cfg)
	if err := d.Append(entries(1, 50, 1), nil, true); err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
	d = mustOpen(t, cfg)
	if d.log.tailBytes > 100 || d.log.tailBytes < 50 {
		t.Errorf("%d bytes are kept, of 100", d.log.tailBytes)
	}
	if d.cfg.CacheBytes != 1<<16 || d.log.tailMax != 100 {
		t.Errorf("a cache of %d bytes, and of the log %d", d.cfg.CacheBytes, d.log.tailMax)
	}
	mustClose(t, d)
	cfg.CacheBytes, cfg.TailBytes = 0, 0
	d = mustOpen(t, cfg)
	if d.cfg.CacheBytes != defaultCacheBytes || d.log.tailMax != defaultTailBytes {
		t.Errorf("a cache of %d bytes, and of the log %d", d.cfg.CacheBytes, d.log.tailMax)
	}
	mustClose(t, d)
}

// TestMakeDirectories: what stands in the way of a durable directory is told, and where not even
// the root is found, that is no endless way up.
func TestMakeDirectories(t *testing.T) {
	for _, kind := range []errorfs.OpKind{
		errorfs.OpMkdirAll, errorfs.OpOpenDir, errorfs.OpFileSync,
	} {
		told := newToldFS()
		told.fail = func(op errorfs.Op) error {
			if op.Kind == kind {
				return syscall.EIO
			}
			return nil
		}
		if err := mkdirDurable(told, "a/b"); !errors.Is(err, syscall.EIO) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
	told := newToldFS()
	told.fail = func(op errorfs.Op) error {
		if op.Kind == errorfs.OpStat {
			return fs.ErrNotExist
		}
		return nil
	}
	if err := mkdirDurable(told, "a/b"); err != nil {
		t.Error(err)
	}
}

// TestMarkerOfTables: table files without a marker are somebody's data, too.
func TestMarkerOfTables(t *testing.T) {
	mem := vfs.NewMem()
	d := &Disk{fs: mem}
	mustClose(t, mustCreate(t, mem, "LOCK"))
	if err := d.checkMarker(); err != nil {
		t.Error(err)
	}
	mustClose(t, mustCreate(t, mem, "000005.sst"))
	if err := d.checkMarker(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a table file, and no marker: %v", err)
	}
	told := newToldFS()
	told.failAll(syscall.EIO)
	if err := (&Disk{fs: told}).checkMarker(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the files cannot be listed: %v", err)
	}
}

// TestPebbleGivesUp: where Pebble would end the process, it is held still, and the Disk has failed
// with its words. The log says from where.
func TestPebbleGivesUp(t *testing.T) {
	var log lockedBuffer
	cfg := testConfig(vfs.NewMem())
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	d := mustBootstrap(t, cfg)
	if !parks(t, func() { pebbleLogger{d}.Fatalf("broken %d", 7) }) {
		t.Error("it comes back")
	}
	err := d.Append(nil, hardState(1, 1, 1), true)
	if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "pebble: broken 7") {
		t.Error(err)
	}
	if err := d.Close(); !errors.Is(err, ErrFailed) {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "pebbleLogger.Fatalf") {
		t.Errorf("the log says %s", text)
	}
}

// TestRaised: a snapshot raises commit and term of the hard state, never lowers them, and leaves
// the vote of a term that stays.
func TestRaised(t *testing.T) {
	for _, c := range []struct {
		hs   *raftpb.HardState
		s    position
		want [3]uint64
	}{
		{nil, position{}, [3]uint64{}},
		{hardState(3, 2, 9), position{}, [3]uint64{3, 2, 9}},
		{hardState(3, 2, 9), position{8, 3}, [3]uint64{3, 2, 9}},
		{hardState(3, 2, 9), position{9, 4}, [3]uint64{3, 2, 9}},
		{hardState(3, 2, 9), position{10, 2}, [3]uint64{3, 2, 10}},
		{hardState(3, 2, 9), position{10, 3}, [3]uint64{3, 2, 10}},
		{hardState(3, 2, 9), position{10, 4}, [3]uint64{4, 0, 10}},
		{nil, position{10, 4}, [3]uint64{4, 0, 10}},
	} {
		hs := raised(c.hs, c.s)
		if got := [3]uint64{hs.GetTerm(), hs.GetVote(), hs.GetCommit()}; got != c.want {
			t.Errorf("%v with a snapshot at %v: %v, want %v", c.hs, c.s, got, c.want)
		}
	}
}

// TestRepairFails: a log that cannot be dropped keeps the directory from being opened.
func TestRepairFails(t *testing.T) {
	d := mustBootstrap(t, testConfig(vfs.NewMem()))
	d.snap.position = position{index: 30, term: 9}
	d.guard.fail(io.ErrUnexpectedEOF)
	if err := d.repair(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	_ = d.Close()
}
