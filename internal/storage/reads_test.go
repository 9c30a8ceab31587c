package storage

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// TestMembership: the members are those of the newest snapshot, or of Bootstrap if there is none,
// for the start and for Raft's view of the snapshot, also after a restart. What is returned is
// a copy.
func TestMembership(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	d := mustBootstrap(t, cfg)
	check := func(want *raftpb.ConfState) {
		t.Helper()
		for range 2 {
			hs, conf, err := d.InitialState()
			s, err2 := d.Snapshot()
			for _, got := range []*raftpb.ConfState{conf, s.GetMetadata().GetConfState()} {
				if got.Equivalent(want) != nil {
					t.Errorf("members %v, want %v (%v, %v)", got, want, err, err2)
				}
				got.Voters = nil
			}
			if hs != nil {
				hs.Term = new(uint64(77))
			}
		}
		mustClose(t, d)
		d = mustOpen(t, cfg)
	}
	check(voters(1))
	check(voters(1))
	if err := d.Append(entries(1, 20, 1), hardState(1, 1, 19), true); err != nil {
		t.Fatal(err)
	}
	if err := writeSnapshot(d, 10, 1, "abc", "de"); err != nil { // its members are 1 and 10
		t.Fatal(err)
	}
	check(voters(1, 10))
	check(voters(1, 10))
	if hs, _, _ := d.InitialState(); hs.GetTerm() != 1 {
		t.Errorf("the hard state is %v", hs)
	}
	if d.SnapshotBytes() != 5 || d.LogBytes() != d.BytesAfter(10) || d.LogBytes() == 0 {
		t.Errorf("%d bytes of snapshot, %d and %d after it",
			d.SnapshotBytes(), d.LogBytes(), d.BytesAfter(10))
	}
	mustClose(t, d)
	cfg = testConfig(vfs.NewMem())
	d = mustOpen(t, cfg)
	if err := d.Bootstrap(Identity{Member: 1}, nil); err != nil {
		t.Fatal(err)
	}
	check(raftpb.EnsureConfState(nil))
	mustClose(t, d)
}

// TestEntriesBounds: reads of the log end where they were told to, by index and by size, whether
// the entries are in memory or not. One that is lost, or is not what was written, is damage.
func TestEntriesBounds(t *testing.T) {
	for _, tail := range []int64{1, 1 << 20} {
		cfg := testConfig(vfs.NewMem())
		cfg.TailBytes = tail
		d := mustBootstrap(t, cfg)
		if err := d.Append(entries(10, 11, 1), nil, true); !errors.Is(err, errGap) {
			t.Errorf("a log that begins at 10: %v", err)
		}
		if err := d.Append(entries(1, 10, 1), nil, true); err != nil {
			t.Fatal(err)
		}
		size := uint64(entrySize(entries(1, 2, 1)[0]))
		for _, c := range []struct {
			lo, hi, max, want uint64
			err               error
		}{
			{2, 5, 1 << 20, 3, nil},
			{2, 5, 2 * size, 2, nil},
			{2, 5, 2*size - 1, 1, nil},
			{2, 5, 0, 1, nil},
			{5, 5, 1 << 20, 0, raft.ErrUnavailable},
			{6, 5, 1 << 20, 0, raft.ErrUnavailable},
			{5, 11, 1 << 20, 0, raft.ErrUnavailable},
			{0, 5, 1 << 20, 0, raft.ErrCompacted},
		} {
			es, err := d.Entries(c.lo, c.hi, c.max)
			if uint64(len(es)) != c.want || !errors.Is(err, c.err) {
				t.Errorf("tail %d, [%d, %d) of %d bytes: %d entries, %v", tail, c.lo, c.hi, c.max, len(es), err)
			}
		}
		if es, _ := d.Entries(7, 10, 1<<20); tail == 1 && len(es) != 2 {
			t.Errorf("up to what is in memory: %d entries", len(es))
		}
		mustClose(t, d)
		if tail > 1 {
			continue
		}
		for name, change := range map[string]func(b *pebble.Batch) error{
			"lost in between": func(b *pebble.Batch) error { return b.Delete(entryKey(4), nil) },
			"lost at the end": func(b *pebble.Batch) error { return b.Delete(entryKey(5), nil) },
			"changed":         func(b *pebble.Batch) error { return b.Set(entryKey(4), []byte("x"), nil) },
		} {
			d := mustOpen(t, cfg)
			b := d.db.NewBatch()
			if err := errors.Join(change(b), b.Commit(nil)); err != nil {
				t.Fatal(err)
			}
			es, err := d.Entries(3, 6, 1<<20)
			if !errors.Is(err, ErrCorrupt) || es != nil {
				t.Errorf("%s: %v, %v", name, es, err)
			}
			if strings.HasPrefix(name, "lost") && !strings.Contains(err.Error(), "entries from 3") {
				t.Errorf("%s: %v", name, err)
			}
			es, err = d.Entries(3, 10, 2*size)
			if name == "lost in between" && (!errors.Is(err, ErrCorrupt) || es != nil) {
				t.Errorf("%s, and the size ends the read: %v, %v", name, es, err)
			}
			if err := d.Append(entries(4, 10, 1), nil, true); err != nil { // as it was
				t.Fatal(err)
			}
			mustClose(t, d)
		}
	}
}

// TestEntriesUnread: that the disk cannot read entries is said, and nothing is returned.
func TestEntriesUnread(t *testing.T) {
	told := newToldFS()
	cfg := testConfig(told)
	cfg.TailBytes = 1
	d := mustBootstrap(t, cfg)
	if err := errors.Join(d.Append(entries(1, 10, 1), nil, true), d.db.Flush()); err != nil {
		t.Fatal(err)
	}
	told.failOn(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt {
			return syscall.EIO
		}
		return nil
	})
	if es, err := d.Entries(1, 5, 1<<20); len(es) > 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("from a disk that cannot be read: %v, %v", es, err)
	}
	told.failOn(nil)
	if es, err := d.Entries(1, 5, 1<<20); len(es) != 4 || err != nil {
		t.Errorf("from a disk that can be read again: %v, %v", es, err)
	}
	mustClose(t, d)
}

// calls are all that may be asked of a Disk.
var calls = map[string]func(d *Disk) error{
	"identity":      func(d *Disk) error { _, _ = d.Identity(); return nil },
	"initial state": func(d *Disk) error { _, _, err := d.InitialState(); return err },
	"term":          func(d *Disk) error { _, err := d.Term(3); return err },
	"last index":    func(d *Disk) error { _, err := d.LastIndex(); return err },
	"first index":   func(d *Disk) error { _, err := d.FirstIndex(); return err },
	"snapshot":      func(d *Disk) error { _, err := d.Snapshot(); return err },
	"compacted":     func(d *Disk) error { _, _ = d.Entries(0, 5, 1); return nil },
	"too late":      func(d *Disk) error { _, _ = d.Entries(5, 50, 1); return nil },
	"in memory":     func(d *Disk) error { _, err := d.Entries(9, 10, 1); return err },
	"log bytes":     func(d *Disk) error { _ = d.LogBytes(); return nil },
	"bytes after":   func(d *Disk) error { _ = d.BytesAfter(3); return nil },
	"snapshot size": func(d *Disk) error { _ = d.SnapshotBytes(); return nil },
	"usage":         func(d *Disk) error { _ = d.Usage(); return nil },
	"peers":         func(d *Disk) error { _ = d.Peers(); return nil },
	"missing":       func(d *Disk) error { _ = d.missing(1, 0, io.EOF); return nil },
	"has room":      func(d *Disk) error { _, _ = d.HasRoom(), d.HasRoomToFree(); return nil },

	"DISK entries":          func(d *Disk) error { _, err := d.Entries(1, 3, 1); return err },
	"DISK append":           func(d *Disk) error { return d.Append(entries(10, 12, 1), nil, true) },
	"DISK append nothing":   func(d *Disk) error { return d.Append(nil, nil, true) },
	"DISK append reserved":  func(d *Disk) error { return d.AppendReserved(entries(12, 13, 1), nil) },
	"DISK flush":            (*Disk).Flush,
	"DISK compact":          func(d *Disk) error { return d.Compact(0) },
	"DISK save peers":       func(d *Disk) error { return d.SavePeers(Peers{}) },
	"DISK write snapshot":   func(d *Disk) error { return writeSnapshot(d, 5, 1) },
	"DISK read snapshot":    func(d *Disk) error { _, _, err := readSnapshot(d); return err },
	"DISK bootstrap":        func(d *Disk) error { return d.Bootstrap(Identity{}, nil) },
	"DISK snapshot too old": func(d *Disk) error { return writeSnapshot(d, 1, 1) },
}

// TestCallsLetGo: no call keeps anything locked, whatever comes of it. After Close, and after a
// failure, those that need the disk say which it was, and the others answer.
func TestCallsLetGo(t *testing.T) {
	for _, state := range []error{nil, errClosed, ErrFailed} {
		cfg := testConfig(vfs.NewMem())
		cfg.TailBytes = 1
		d := mustBootstrap(t, cfg)
		if err := d.Append(entries(1, 10, 1), hardState(1, 1, 9), true); err != nil {
			t.Fatal(err)
		}
		if err := writeSnapshot(d, 3, 1); err != nil {
			t.Fatal(err)
		}
		switch {
		case errors.Is(state, errClosed):
			mustClose(t, d)
		case errors.Is(state, ErrFailed):
			d.guard.fail(syscall.EIO)
		}
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			err := calls[name](d)
			disk := strings.HasPrefix(name, "DISK")
			if disk && state != nil && !errors.Is(err, state) {
				t.Errorf("%s, %v: %v", name, state, err)
			}
			if state == errClosed && errors.Is(err, ErrFailed) {
				t.Errorf("%s: closed is called a failure: %v", name, err)
			}
			if !disk && err != nil {
				t.Errorf("%s, %v: %v", name, state, err)
			}
			if !d.life.TryLock() || !d.mu.TryLock() || len(d.write) > 0 {
				t.Fatalf("%s, %v: something is locked", name, state)
			}
			d.mu.Unlock()
			d.life.Unlock()
		}
		if u := d.Usage(); u.DiskBytes > 0 != (state == nil) || u.LastIndex < 9 {
			t.Errorf("%v: usage %+v", state, u)
		}
		if err := d.Close(); !errors.Is(err, state) && state != errClosed {
			t.Errorf("close, %v: %v", state, err)
		}
		if d.guard.err() == nil {
			t.Errorf("%v: after Close something may be written", state)
		}
	}
}

// TestCloseFails: what Pebble has to say when it is closed is returned.
func TestCloseFails(t *testing.T) {
	d := mustBootstrap(t, testConfig(vfs.NewMem()))
	if _, err := d.db.NewIter(nil); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err == nil || !strings.Contains(err.Error(), "iterators") {
		t.Errorf("close with an open iterator: %v", err)
	}
}

// TestSizesOfFiles: what is used is what the files have. Directories do not count, nor what is
// removed while it is counted.
func TestSizesOfFiles(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "d"), 0o700),
		os.WriteFile(filepath.Join(dir, "a"), make([]byte, 70), 0o600),
		os.WriteFile(filepath.Join(dir, "b"), make([]byte, 7), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	d := &Disk{fs: removingFS{vfs.Default}}
	if got := d.sizes(dir); got != 77 {
		t.Errorf("%d bytes, want 77", got)
	}
	if got := d.sizes(filepath.Join(dir, "no")); got != 0 {
		t.Errorf("%d bytes in no directory", got)
	}
}

// A removingFS lists a file that is gone by then.
type removingFS struct{ vfs.FS }

func (f removingFS) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	return append(names, "gone"), err
}
