package storage_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/storage"
	"leasehold.dev/test/crashfs"
)

var testID = storage.Identity{Cluster: 1, Member: 2, Incarnation: 3, Name: "m", Generation: 4}

// open opens a directory, and initializes it if it is empty.
func open(t *testing.T, c storage.Config) *storage.Disk {
	t.Helper()
	d, err := storage.Open(c)
	fatal(t, err)
	if _, founded := d.Identity(); !founded {
		fatal(t, d.Bootstrap(testID, &raftpb.ConfState{Voters: []uint64{2}}))
	}
	return d
}

// one returns a slice with one entry that has the given size.
func one(index uint64, bytes int) []*raftpb.Entry {
	return []*raftpb.Entry{{
		Index: &index, Term: new(uint64(1)), Type: new(raftpb.EntryNormal), Data: make([]byte, bytes),
	}}
}

func hard(commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(2)), Commit: &commit}
}

// snapshot saves a snapshot at index and drops the log up to drop.
func snapshot(t *testing.T, d *storage.Disk, index, drop uint64) {
	t.Helper()
	w, err := d.NewSnapshot(storage.SnapshotMeta{
		Index: index, Term: 1, ConfState: &raftpb.ConfState{Voters: []uint64{2}},
	})
	fatal(t, err)
	fatal(t, w.Write([]byte("state")))
	fatal(t, w.Commit(drop))
}

// TestCommitNeverGoesBack checks that the commit index never falls behind the newest snapshot,
// because Raft would then refuse to start. A write that waited for space can carry such an old
// commit index.
func TestCommitNeverGoesBack(t *testing.T) {
	c := storage.Config{Dir: t.TempDir(), SegmentBytes: smallSegment}
	d := open(t, c)
	for i := range uint64(9) {
		fatal(t, d.Append(one(i+1, 10), hard(i)))
	}
	snapshot(t, d, 9, 0)
	fatal(t, d.Append(one(10, 10), hard(5)))
	fatal(t, d.SaveVote(1, 2)) // immediately durable
	fatal(t, d.Close())
	d = open(t, c)
	defer d.Close()
	hs, _, err := d.InitialState()
	fatal(t, err)
	if hs.GetCommit() != 9 {
		t.Errorf("the commit index is %d, want 9", hs.GetCommit())
	}
}

// TestOS checks that, on the real file system, writes survive a restart, and that a member locks
// its directory against other members and dumps.
func TestOS(t *testing.T) {
	c := storage.Config{Dir: filepath.Join(t.TempDir(), "new", "data"), SegmentBytes: smallSegment}
	d := open(t, c)
	for i := range uint64(40) {
		fatal(t, d.Append(one(i+1, 1000), hard(i)))
	}
	snapshot(t, d, 30, 25)
	if _, err := storage.Open(c); !errors.Is(err, storage.ErrLocked) {
		t.Errorf("second member: %v", err)
	}
	err := storage.Inspect(c, storage.Wanted{}, func(storage.Record) error { return nil })
	if !errors.Is(err, storage.ErrLocked) {
		t.Errorf("dump while the member runs: %v", err)
	}
	fatal(t, d.Close())
	fatal(t, storage.Inspect(c, storage.Wanted{}, func(r storage.Record) error {
		if _, err := storage.Open(c); !errors.Is(err, storage.ErrLocked) {
			t.Errorf("member during a dump: %v", err)
		}
		return r.Err
	}))
	d = open(t, c)
	defer d.Close()
	id, _ := d.Identity()
	first, _ := d.FirstIndex()
	last, _ := d.LastIndex()
	entries, err := d.Entries(first, last+1, 1<<30)
	if id != testID || first != 26 || last != 40 || len(entries) != 15 || err != nil {
		t.Errorf("%+v has entries %d to %d: %d, %v", id, first, last, len(entries), err)
	}
	if _, err := d.Entries(25, 27, 1); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("compacted entry: %v", err)
	}
}

// TestReadsOnce checks that entries read by Open stay in memory until the member has applied them,
// even if they exceed the tail that is kept later. The test erases the files after Open.
func TestReadsOnce(t *testing.T) {
	files := crashfs.New()
	c := sweepConfig(files)
	c.TailBytes = 2000
	d := open(t, c)
	for i := range uint64(12) {
		fatal(t, d.Append(one(i+1, 1000), hard(i)))
	}
	fatal(t, d.Close())
	d = open(t, c)
	fatal(t, d.Append(nil, hard(12)))
	wipe := func() {
		for name, b := range contents(t, files) {
			put(t, files, name, make([]byte, len(b)))
		}
	}
	wipe()
	if entries, err := d.Entries(1, 13, 1<<20); len(entries) != 12 || err != nil {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	fatal(t, d.Append(one(13, 10), nil))
	wipe()
	if _, err := d.Entries(1, 13, 1<<20); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("all entries are still in memory: %v", err)
	}
}

// TestForeignDirectory checks that Open rejects an etcd data directory and creates nothing in it.
func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	fatal(t, os.MkdirAll(filepath.Join(dir, "member", "wal"), 0o700))
	if _, err := storage.Open(storage.Config{Dir: dir}); !errors.Is(err, storage.ErrForeign) {
		t.Errorf("error %v", err)
	}
	if names, err := os.ReadDir(dir); len(names) != 1 || err != nil {
		t.Errorf("the directory has %v, %v", names, err)
	}
}

// TestNewerRecord checks that Open does not skip a record of an unknown type.
func TestNewerRecord(t *testing.T) {
	c := sweepConfig(crashfs.New())
	d := open(t, c)
	fatal(t, d.CommitUnknown())
	fatal(t, d.Close())
	if _, err := storage.Open(c); !errors.Is(err, encoding.ErrNewer) ||
		!strings.Contains(err.Error(), "run the release that wrote it") {
		t.Errorf("error %v", err)
	}
}

// TestFullDisk checks what is rejected as a disk fills up: first ordinary client commands, then
// client commands that free space, then everything except votes and snapshots. A rejected write
// writes nothing. A snapshot turns the old log into the next spare, and space freed by others is
// detected.
func TestFullDisk(t *testing.T) {
	files := crashfs.New()
	c := sweepConfig(files)
	c.SegmentBytes = 64 * 4096
	d := open(t, c)
	files.Limit(files.Used() + 4096)
	last := uint64(0)
	until := func(what string, refused func() bool) {
		t.Helper()
		for range 100 {
			if refused() {
				if at, _ := d.LastIndex(); at != last {
					t.Fatalf("%s: after a refusal, the log ends at %d, want %d", what, at, last)
				}
				return
			}
			last++
		}
		t.Fatalf("%s: never refused", what)
	}
	append := func(call func() error) bool {
		t.Helper()
		err := call()
		if err != nil && !errors.Is(err, storage.ErrNoSpace) {
			t.Fatal(err)
		}
		return err != nil
	}
	until("clients", func() bool {
		return append(func() error { return d.Append(one(last+1, 100), nil) })
	})
	if d.HasRoom() || !d.HasRoomToFree() {
		t.Errorf("full disk: space for clients %v, to free space %v", d.HasRoom(), d.HasRoomToFree())
	}
	freed := 0
	until("leases", func() bool {
		if d.HasRoomToFree() {
			freed++
		}
		return append(func() error { return d.AppendReserved(one(last+1, 100), nil) })
	})
	if d.HasRoomToFree() || freed < 20 {
		t.Errorf("%d commands that free space were accepted, want 20 or more, then none", freed)
	}
	fatal(t, d.Append(nil, hard(last))) // the space for votes is still available
	snapshot(t, d, last, last)
	if !d.HasRoom() || !append(func() error { return nil }) && d.Spares() == 0 {
		t.Error("the log before the snapshot did not become a spare")
	}
	until("clients", func() bool {
		return append(func() error { return d.Append(one(last+1, 100), nil) })
	})
	files.Limit(0)
	if !d.HasRoom() {
		t.Error("space freed by others is not found")
	}
	fatal(t, d.Append(one(last+1, 100), nil))
	fatal(t, d.Close())
	d = open(t, c)
	if at, _ := d.LastIndex(); at != last+1 {
		t.Errorf("log ends at %d, want %d", at, last+1)
	}
	fatal(t, d.Close())
}

// TestFailedSync checks that nothing more is written after a failed sync. All acknowledged data is
// there after a restart.
func TestFailedSync(t *testing.T) {
	files := crashfs.New()
	var broken atomic.Bool
	files.Before = func(op crashfs.Op) error {
		if broken.Load() && op.Kind == crashfs.Sync {
			return syscall.EIO
		}
		return nil
	}
	d := open(t, sweepConfig(files))
	fatal(t, d.Append(one(1, 10), hard(0)))
	broken.Store(true)
	if err := d.Append(one(2, 10), nil); !errors.Is(err, storage.ErrFailed) ||
		!errors.Is(err, syscall.EIO) {
		t.Errorf("failed sync: %v", err)
	}
	broken.Store(false)
	for what, call := range map[string]func() error{
		"append": func() error { return d.Append(one(2, 10), nil) },
		"vote":   func() error { return d.Append(nil, hard(1)) },
		"peers":  func() error { return d.SavePeers(storage.Peers{}) },
	} {
		if err := call(); !errors.Is(err, storage.ErrFailed) {
			t.Errorf("%s after a failed sync: %v", what, err)
		}
	}
	if err := d.Close(); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("close after a failed sync: %v", err)
	}
	d = open(t, sweepConfig(files.Clone()))
	if last, _ := d.LastIndex(); last < 1 {
		t.Errorf("the log ends at %d", last)
	}
	fatal(t, d.Close())
}

// TestHungDisk checks that while a sync hangs, Raft can still read the log and the disk still
// reports its state.
func TestHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := crashfs.New()
		var hangs atomic.Bool
		release := make(chan struct{})
		files.Before = func(op crashfs.Op) error {
			if hangs.Load() && op.Kind == crashfs.Sync {
				<-release
			}
			return nil
		}
		d := open(t, storage.Config{Dir: "data", FS: files, SegmentBytes: smallSegment, TailBytes: 1})
		for i := range uint64(9) {
			fatal(t, d.Append(one(i+1, 100), hard(i)))
		}
		hangs.Store(true)
		ended := make(chan error)
		go func() { ended <- d.Append(one(10, 100), nil) }()
		time.Sleep(time.Minute) // fake time
		entries, err := d.Entries(1, 10, 1<<20)
		// the last entry is in memory and is left to another call
		if len(entries) != 8 || err != nil {
			t.Errorf("%d entries, %v", len(entries), err)
		}
		if last, _ := d.LastIndex(); last != 9 || !d.HasRoom() || d.Usage().LastIndex != 9 {
			t.Errorf("the log ends at %d, %+v", last, d.Usage())
		}
		close(release)
		fatal(t, <-ended)
		fatal(t, d.Close())
	})
}

// TestSettle checks that the last commit is followed by one empty commit, which lets Open detect a
// lost sector of the last commit. It is written only if there was no other commit in between.
func TestSettle(t *testing.T) {
	files := crashfs.New()
	writes := 0
	files.Before = func(op crashfs.Op) error {
		if op.Kind == crashfs.Write && strings.HasSuffix(op.Name, ".segment") {
			writes++
		}
		return nil
	}
	c := sweepConfig(files)
	c.SegmentBytes = 1 << 20
	d := open(t, c)
	for i := range uint64(3) {
		fatal(t, d.Append(one(i+1, 100), nil))
		for n, want := range []int{0, 1, 0, 0} {
			writes = 0
			if fatal(t, d.Settle()); writes != want {
				t.Errorf("call %d after commit %d: %d writes, want %d", n+1, i+1, writes, want)
			}
		}
	}
	fatal(t, d.Close())
}

// TestConcurrent checks that goroutines can use a Disk concurrently. Run with -race.
func TestConcurrent(t *testing.T) {
	d := open(t, storage.Config{
		Dir: "data", FS: crashfs.New(), SegmentBytes: smallSegment, TailBytes: 2000,
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(f func() error) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	loop(func() error {
		first, _ := d.FirstIndex()
		last, _ := d.LastIndex()
		if first > last {
			return nil
		}
		entries, err := d.Entries(first, last+1, 10_000)
		if errors.Is(err, raft.ErrCompacted) || errors.Is(err, raft.ErrUnavailable) {
			return nil
		}
		for i, e := range entries {
			if e.GetIndex() != first+uint64(i) {
				return fmt.Errorf("entry %d at %d", e.GetIndex(), first+uint64(i))
			}
		}
		return err
	})
	loop(func() error {
		r, err := d.OpenSnapshot()
		if err != nil {
			return nil // there is no snapshot yet, or it has been replaced
		}
		chunk, err := r.Next()
		if err == nil && string(chunk) != "state" {
			err = fmt.Errorf("chunk %q", chunk)
		}
		return errors.Join(err, r.Close())
	})
	loop(func() error {
		d.Usage()
		d.HasRoomToFree()
		d.Peers()
		return nil
	})
	wg.Go(func() {
		for i := uint64(20); ; i += 20 {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if last, _ := d.LastIndex(); last > i {
					break
				}
			}
			snapshot(t, d, i, i-5)
		}
	})
	for i := range uint64(600) {
		fatal(t, d.Append(one(i+1, 500), hard(i)))
	}
	close(stop)
	wg.Wait()
	fatal(t, d.Close())
}
