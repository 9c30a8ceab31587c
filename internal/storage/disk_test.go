package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// testConfig is small: hundreds of Disks are opened, and those that fail leak.
// Their logs reserve space as those on a real disk do.
func testConfig(fs vfs.FS) Config {
	if fs != nil {
		fs = reservingFS{FS: fs}
	}
	return Config{
		Dir: "data", FS: fs, MemTableBytes: 64 << 10, CacheBytes: 1 << 16,
		ReserveBytes: -1, BallastBytes: 64 << 10, TailBytes: 4 << 10,
	}
}

func mustOpen(t testing.TB, cfg Config) *Disk {
	t.Helper()
	d, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustBootstrap(t testing.TB, cfg Config) *Disk {
	t.Helper()
	d := mustOpen(t, cfg)
	if err := d.Bootstrap(Identity{Cluster: 7, Member: 1, Name: "m1"}, voters(1)); err != nil {
		t.Fatal(err)
	}
	return d
}

func voters(ids ...uint64) *raftpb.ConfState {
	return raftpb.EnsureConfState(&raftpb.ConfState{Voters: ids})
}

func entry(index, term uint64, data string) *raftpb.Entry {
	return &raftpb.Entry{
		Index: new(index), Term: new(term), Type: raftpb.EntryNormal.Enum(), Data: []byte(data),
	}
}

func entries(lo, hi, term uint64) []*raftpb.Entry {
	var es []*raftpb.Entry
	for i := lo; i < hi; i++ {
		es = append(es, entry(i, term, fmt.Sprintf("%d@%d", i, term)))
	}
	return es
}

func hardState(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

func writeSnapshot(d *Disk, index, term uint64, chunks ...string) error {
	w, err := d.NewSnapshot(SnapshotMeta{Index: index, Term: term, ConfState: voters(1, index)})
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, c := range chunks {
		if err := w.Write([]byte(c)); err != nil {
			return err
		}
	}
	return w.Commit()
}

func readSnapshot(d *Disk) (SnapshotInfo, []string, error) {
	r, err := d.OpenSnapshot()
	if err != nil {
		return SnapshotInfo{}, nil, err
	}
	defer ignoreClose(r)
	var chunks []string
	for {
		c, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Meta(), chunks, nil
		}
		if err != nil {
			return r.Meta(), chunks, err
		}
		chunks = append(chunks, string(c))
	}
}

// TestBootstrap: an empty directory becomes a member's once, and stays so.
func TestBootstrap(t *testing.T) {
	mem := vfs.NewCrashableMem()
	cfg := testConfig(mem)
	d := mustOpen(t, cfg)
	if _, done := d.Identity(); done {
		t.Error("an empty directory has an identity")
	}
	if err := d.Append(entries(1, 2, 1), nil, true); !errors.Is(err, errNotBootstrapped) {
		t.Errorf("append: %v", err)
	}
	if _, err := d.NewSnapshot(SnapshotMeta{Index: 1}); !errors.Is(err, errNotBootstrapped) {
		t.Errorf("snapshot: %v", err)
	}
	if _, err := d.OpenSnapshot(); !errors.Is(err, errNoSnapshot) {
		t.Errorf("open snapshot: %v", err)
	}
	id := Identity{Cluster: 1, Member: 2, Name: "m", Generation: 3, CreatedUnixMilli: 4}
	if err := d.Bootstrap(id, voters(2, 3)); err != nil {
		t.Fatal(err)
	}
	// Not closed: Bootstrap is durable by itself.
	cfg.FS = mem.CrashClone(vfs.CrashCloneCfg{})
	again := mustOpen(t, cfg)
	if got, done := again.Identity(); !done || got != id {
		t.Errorf("got %+v, want %+v", got, id)
	}
	hs, conf, err := again.InitialState()
	if err != nil || hs != nil || conf.Equivalent(voters(2, 3)) != nil {
		t.Errorf("initial state: %v %v %v", hs, conf, err)
	}
	if err := again.Bootstrap(id, nil); !errors.Is(err, errBootstrapped) {
		t.Errorf("second bootstrap: %v", err)
	}
	mustClose(t, d)
	mustClose(t, again)
}

func mustClose(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestAppend: what Append accepts, what it refuses, and what it leaves out.
func TestAppend(t *testing.T) {
	d := mustBootstrap(t, testConfig(vfs.NewMem()))
	defer mustClose(t, d)
	appendOK := func(es []*raftpb.Entry, hs *raftpb.HardState, sync bool) {
		t.Helper()
		if err := d.Append(es, hs, sync); err != nil {
			t.Fatal(err)
		}
	}
	appendOK(nil, nil, false)
	appendOK(nil, nil, true)
	appendOK(nil, &raftpb.HardState{}, true)
	appendOK(entries(1, 20, 1), hardState(1, 1, 10), false)
	if err := d.Append(entries(21, 22, 1), nil, true); !errors.Is(err, errGap) {
		t.Errorf("gap before: %v", err)
	}
	hole := []*raftpb.Entry{entry(20, 1, ""), entry(22, 1, "")}
	if err := d.Append(hole, nil, true); !errors.Is(err, errGap) {
		t.Errorf("gap inside: %v", err)
	}
	appendOK(entries(15, 17, 2), nil, true)
	if last, _ := d.LastIndex(); last != 16 {
		t.Errorf("last index %d after a suffix was replaced, want 16", last)
	}
	if _, err := d.Entries(10, 18, 1<<20); !errors.Is(err, raft.ErrUnavailable) {
		t.Errorf("entries beyond the log: %v", err)
	}
	if err := writeSnapshot(d, 10, 1); err != nil {
		t.Fatal(err)
	}
	if err := d.Compact(11); !errors.Is(err, errGap) {
		t.Errorf("compact beyond the snapshot: %v", err)
	}
	for range 2 { // the second does nothing
		if err := d.Compact(10); err != nil {
			t.Error(err)
		}
	}
	appendOK(entries(8, 14, 1), nil, true) // 8 to 10 are compacted
	if _, _, err := d.db.Get(entryKey(9)); !errors.Is(err, pebble.ErrNotFound) {
		t.Errorf("a compacted entry is written again: %v", err)
	}
	if term, err := d.Term(10); term != 1 || err != nil {
		t.Errorf("term before the log: %d, %v", term, err)
	}
	if _, err := d.Entries(10, 11, 1); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("compacted: %v", err)
	}
	u := d.Usage()
	if u.FirstIndex != 11 || u.LastIndex != 13 || u.SnapshotIndex != 10 || u.DiskBytes == 0 {
		t.Errorf("usage %+v", u)
	}
}

// TestColdEntries: entries that left memory come from disk, in pieces of the size
// that was asked for, one at least.
func TestColdEntries(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.TailBytes = 1
	d := mustBootstrap(t, cfg)
	defer mustClose(t, d)
	if err := d.Append(entries(1, 101, 1), nil, true); err != nil {
		t.Fatal(err)
	}
	for _, max := range []uint64{0, 1, 40, 1 << 30} {
		for next := uint64(1); next <= 100; {
			es, err := d.Entries(next, 101, max)
			if err != nil || len(es) == 0 {
				t.Fatalf("from %d: %d entries, %v", next, len(es), err)
			}
			size := 0
			for _, e := range es {
				size += entrySize(e)
				if e.GetIndex() != next || string(e.GetData()) != fmt.Sprintf("%d@1", next) {
					t.Fatalf("entry %d: %v", next, e)
				}
				next++
			}
			if len(es) > 1 && uint64(size) > max {
				t.Fatalf("%d entries of %d bytes, asked for %d", len(es), size, max)
			}
		}
	}
}

// TestSnapshot: one at a time, always newer, and what is aborted leaves nothing.
func TestSnapshot(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	d := mustBootstrap(t, cfg)
	defer mustClose(t, d)
	if err := d.Append(entries(1, 20, 1), hardState(1, 1, 19), true); err != nil {
		t.Fatal(err)
	}
	w, err := d.NewSnapshot(SnapshotMeta{Index: 5, Term: 1, ConfState: voters(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.NewSnapshot(SnapshotMeta{Index: 6, Term: 1}); !errors.Is(err, ErrBusy) {
		t.Errorf("second writer: %v", err)
	}
	w.Abort()
	w.Abort()
	if err := w.Commit(); !errors.Is(err, errClosed) {
		t.Errorf("commit after abort: %v", err)
	}
	if names, err := cfg.FS.List("data/incoming"); err != nil || len(names) > 0 {
		t.Errorf("left over: %v, %v", names, err)
	}
	if err := writeSnapshot(d, 5, 1, "a", "", "b"); err != nil {
		t.Fatal(err)
	}
	if err := writeSnapshot(d, 5, 1); !errors.Is(err, ErrOutOfDate) {
		t.Errorf("same index: %v", err)
	}
	info, chunks, err := readSnapshot(d)
	if err != nil || !slices.Equal(chunks, []string{"a", "", "b"}) {
		t.Errorf("got %q, %v", chunks, err)
	}
	if info.Index != 5 || info.Term != 1 || info.Chunks != 3 || info.Bytes != 2 ||
		info.ConfState.Equivalent(voters(1, 5)) != nil {
		t.Errorf("meta %+v", info)
	}
	s, err := d.Snapshot()
	if err != nil || s.GetMetadata().GetIndex() != 5 || len(s.GetData()) > 0 {
		t.Errorf("raft's view: %v, %v", s, err)
	}
	if first, _ := d.FirstIndex(); first != 1 {
		t.Errorf("a snapshot of the member's own state cut the log: first is %d", first)
	}
}

// TestFinishedSnapshot: after Finish a snapshot takes no more chunks, and is committed as it is,
// however often it was finished.
func TestFinishedSnapshot(t *testing.T) {
	d := mustBootstrap(t, testConfig(vfs.NewMem()))
	defer mustClose(t, d)
	for i, late := range []bool{true, false} {
		w, err := d.NewSnapshot(SnapshotMeta{Index: uint64(5 + i), Term: 1, ConfState: voters(1)})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Write([]byte("a")), w.Finish(), w.Finish()); err != nil {
			t.Fatal(err)
		}
		if late && w.Write([]byte("b")) == nil {
			t.Error("a chunk was taken after the last")
		}
		if err := w.Commit(); (err != nil) != late {
			t.Errorf("commit, with a late chunk %v: %v", late, err)
		}
	}
	if _, chunks, err := readSnapshot(d); err != nil || !slices.Equal(chunks, []string{"a"}) {
		t.Errorf("got %q, %v", chunks, err)
	}
}

// TestReaderOutlivesSnapshot: a reader that is at work when a newer snapshot comes
// goes on with the old one, and Close of the Disk ends it.
func TestReaderOutlivesSnapshot(t *testing.T) {
	cfg := testConfig(nil)
	cfg.Dir = t.TempDir()
	d := mustBootstrap(t, cfg)
	if err := d.Append(entries(1, 20, 1), hardState(1, 1, 19), true); err != nil {
		t.Fatal(err)
	}
	if err := writeSnapshot(d, 5, 1, "a", "b", "c"); err != nil {
		t.Fatal(err)
	}
	r, err := d.OpenSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := r.Next(); string(c) != "a" || err != nil {
		t.Fatalf("%q, %v", c, err)
	}
	if err := writeSnapshot(d, 9, 1, "x"); err != nil {
		t.Fatal(err)
	}
	if c, err := r.Next(); string(c) != "b" || err != nil {
		t.Fatalf("%q, %v", c, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
	mustClose(t, r)
	d = mustOpen(t, cfg)
	defer mustClose(t, d)
	if info, chunks, err := readSnapshot(d); err != nil || info.Index != 9 ||
		!slices.Equal(chunks, []string{"x"}) {
		t.Errorf("%+v %q, %v", info, chunks, err)
	}
}

// TestInstall: a snapshot from the leader replaces a log that does not contain it,
// and only such a log (Raft paper, section 7).
func TestInstall(t *testing.T) {
	for _, c := range []struct {
		name        string
		index, term uint64
		first, last uint64
	}{
		{"ahead of the log", 50, 3, 51, 50},
		{"conflicting", 10, 3, 11, 10},
		{"a prefix", 10, 1, 1, 19},
		{"the whole log", 19, 1, 1, 19},
	} {
		cfg := testConfig(vfs.NewMem())
		d := mustBootstrap(t, cfg)
		if err := d.Append(entries(1, 20, 1), hardState(1, 1, 5), true); err != nil {
			t.Fatal(err)
		}
		if err := writeSnapshot(d, c.index, c.term, "state"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			first, _ := d.FirstIndex()
			last, _ := d.LastIndex()
			term, err := d.Term(c.index)
			hs, _, _ := d.InitialState()
			if hs.GetCommit() != c.index || hs.GetTerm() != c.term {
				t.Errorf("%s: hard state %v", c.name, hs)
			}
			if first != c.first || last != c.last || term != c.term || err != nil {
				t.Errorf("%s: log [%d, %d], term %d (%v)", c.name, first, last, term, err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d = mustOpen(t, cfg)
		}
		if err := d.Append(entries(c.last+1, c.last+3, 4), nil, true); err != nil {
			t.Errorf("%s: append after: %v", c.name, err)
		}
		mustClose(t, d)
	}
}

// TestDiskBytes: the usage counts every file, also the log that is being written. The entry fits
// into the table in memory, so no file is written in the background while they are counted.
func TestDiskBytes(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.MemTableBytes = 1 << 20
	d := mustBootstrap(t, cfg)
	defer mustClose(t, d)
	const size = 100_000
	e := entry(1, 1, strings.Repeat("x", size))
	if err := d.Append([]*raftpb.Entry{e}, hardState(1, 1, 1), true); err != nil {
		t.Fatal(err)
	}
	want := boundedFS{FS: cfg.FS}.size("data")
	if got := d.Usage().DiskBytes; got != want || got < size {
		t.Errorf("%d bytes on disk, want %d", got, want)
	}
}

// TestConcurrent lets everything that may run at once run at once, for the race
// detector, and for locks that would wait for each other.
func TestConcurrent(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	d := mustBootstrap(t, cfg)
	const n = 400
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(1); i <= n; i++ {
			if err := d.Append(entries(i, i+1, 1), hardState(1, 1, i), i%4 == 0); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for done := uint64(0); done < n; {
			last, _ := d.LastIndex()
			if last == done {
				runtime.Gosched()
				continue
			}
			done = last
			if err := writeSnapshot(d, last, 1, "state", "more"); err != nil {
				t.Error(err)
			}
			if err := d.Compact(last - min(last, 10)); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for {
			first, _ := d.FirstIndex()
			last, _ := d.LastIndex()
			_, err := d.Entries(first, last+1, 1<<20)
			if err != nil && !errors.Is(err, raft.ErrCompacted) && last >= first {
				t.Error(err)
			}
			if _, _, err := readSnapshot(d); err != nil && !errors.Is(err, errNoSnapshot) {
				t.Error(err)
			}
			_ = d.Usage()
			if last == n {
				return
			}
		}
	})
	wg.Wait()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Append(entries(n+1, n+2, 1), nil, true); !errors.Is(err, errClosed) {
		t.Errorf("append after close: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// lockedBuffer takes the log of a Disk, whose goroutines may write at any time.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns what was written.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
