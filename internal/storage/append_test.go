package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// TestUnsynced: an append without sync costs no sync, and is durable after whatever is synced next,
// also if that has nothing to write itself. A power cut before may take it.
func TestUnsynced(t *testing.T) {
	for name, flush := range map[string]func(d *Disk) error{
		"nothing":             func(d *Disk) error { return d.Append(nil, nil, true) },
		"an empty hard state": func(d *Disk) error { return d.Append(nil, &raftpb.HardState{}, true) },
		"a hard state":        func(d *Disk) error { return d.Append(nil, hardState(1, 1, 1), true) },
		"an entry":            func(d *Disk) error { return d.Append(entries(9, 10, 1), nil, true) },
		"flush":               (*Disk).Flush,
	} {
		fs := newCutFS()
		d := mustBootstrap(t, testConfig(fs))
		var syncs atomic.Int64
		count := func() { syncs.Add(1) }
		fs.sync.Store(&count)
		err := errors.Join(
			d.Append(entries(1, 9, 1), hardState(1, 1, 1), false), d.Append(nil, nil, false),
		)
		if err != nil || syncs.Load() > 0 {
			t.Errorf("%s: an append without sync: %v, %d syncs", name, err, syncs.Load())
		}
		for _, last := range []uint64{0, 8} {
			again := mustOpen(t, testConfig(fs.CrashClone(vfs.CrashCloneCfg{})))
			if got, _ := again.LastIndex(); min(got, 8) != last {
				t.Errorf("%s: after a power cut the log ends at %d, want %d", name, got, last)
			}
			mustClose(t, again)
			if err := flush(d); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		mustClose(t, d)
	}
}

// TestFlushFails: a flush during which the disk fails says so.
func TestFlushFails(t *testing.T) {
	told := newToldFS()
	d := mustBootstrap(t, testConfig(told))
	if err := d.Append(entries(1, 2, 1), nil, false); err != nil {
		t.Fatal(err)
	}
	told.failAll(syscall.EIO)
	if err := d.Flush(); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want ErrFailed for EIO", err)
	}
	_ = d.Close()
}

// TestHardStateStays: an append that has no hard state, or an empty one, leaves what is there, in
// memory and on disk: it may be a vote.
func TestHardStateStays(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	d := mustBootstrap(t, cfg)
	for _, err := range []error{
		d.Append(entries(1, 5, 1), hardState(3, 2, 4), true),
		d.Append(entries(5, 6, 3), nil, true),
		d.Append(entries(6, 7, 3), &raftpb.HardState{}, true),
		d.Append(nil, &raftpb.HardState{}, true),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		hs, _, err := d.InitialState()
		if hs.GetTerm() != 3 || hs.GetVote() != 2 || hs.GetCommit() != 4 || err != nil {
			t.Errorf("the hard state is %v, %v", hs, err)
		}
		mustClose(t, d)
		d = mustOpen(t, cfg)
	}
	mustClose(t, d)
}

// TestBatch: what an append writes, and no more: entries, the removal of just those that come after
// them, the hard state. What it asks room for is what it writes.
func TestBatch(t *testing.T) {
	d := mustBootstrap(t, testConfig(vfs.NewMem()))
	defer mustClose(t, d)
	if err := d.Append(entries(1, 10, 1), nil, true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		lo, hi uint64
		hs     *raftpb.HardState
		want   string
	}{
		{10, 12, hardState(1, 1, 1), "set l10, set l11, set h"},
		{9, 10, nil, "set l9"},
		{7, 8, nil, "set l7, delete l8 to l10"},
		{10, 10, hardState(1, 1, 1), "set h"},
	} {
		want, size := entries(c.lo, c.hi, 2), 0
		es, last, err := d.admit(want, func(n int) bool { size += n; return true })
		if err != nil || !slices.Equal(es, want) || last != 9 {
			t.Errorf("admit [%d, %d): %v, the log ends at %d, %v", c.lo, c.hi, es, last, err)
		}
		b := d.db.NewBatch()
		if err := fill(b, es, c.hs, last); err != nil {
			t.Fatal(err)
		}
		got, wrote := operations(t, b)
		if got != c.want || size != wrote {
			t.Errorf("[%d, %d): %s; room for %d bytes, want %s; %d", c.lo, c.hi, got, size, c.want, wrote)
		}
		mustClose(t, b)
	}
}

// operations tells of a batch in words, and how large the entries in it are.
func operations(t *testing.T, b *pebble.Batch) (text string, size int) {
	t.Helper()
	name := func(key []byte) string {
		if i, err := parseEntryKey(key); err == nil {
			return fmt.Sprint("l", i)
		}
		return string(key)
	}
	var all []string
	for r := b.Reader(); ; {
		kind, key, value, ok, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return strings.Join(all, ", "), size
		}
		switch {
		case kind == pebble.InternalKeyKindSet:
			all = append(all, "set "+name(key))
		default:
			all = append(all, "delete "+name(key)+" to "+name(value))
		}
		if key[0] == prefixEntry && kind == pebble.InternalKeyKindSet {
			size += len(key) + len(value)
		}
	}
}

// TestMissingEntries: an entry that a read did not find is lost, unless entries were taken from the
// log during that read: then it is read again.
func TestMissingEntries(t *testing.T) {
	d := mustBootstrap(t, testConfig(vfs.NewMem()))
	defer mustClose(t, d)
	if err := d.Append(entries(1, 20, 1), hardState(1, 1, 10), true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		do   func() error
		lo   uint64
		want error
	}{
		{"entries follow", func() error {
			return d.Append(entries(20, 22, 1), nil, true)
		}, 5, ErrCorrupt},
		{"a hard state", func() error { return d.Append(nil, hardState(1, 1, 11), true) }, 5, ErrCorrupt},
		{"the last is replaced", func() error {
			return d.Append(entries(21, 22, 1), nil, true)
		}, 5, raft.ErrUnavailable},
		{"a snapshot", func() error { return writeSnapshot(d, 10, 1) }, 5, ErrCorrupt},
		{"what comes before is compacted", func() error { return d.Compact(4) }, 5, raft.ErrUnavailable},
		{"a compaction that does nothing", func() error { return d.Compact(3) }, 5, ErrCorrupt},
		{"it is compacted", func() error { return d.Compact(6) }, 5, raft.ErrCompacted},
		{"a snapshot from the leader", func() error {
			return writeSnapshot(d, 30, 2)
		}, 31, raft.ErrUnavailable},
	} {
		cuts := d.cuts
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := d.missing(c.lo, cuts, errMissing); !errors.Is(err, c.want) {
			t.Errorf("%s: entry %d: %v, want %v", c.name, c.lo, err, c.want)
		}
	}
}

// TestCompactBeforeDrop: a snapshot from the leader, ahead of the log, is on disk a moment before
// the log is dropped. In that moment the log is not cut where it has no entry.
func TestCompactBeforeDrop(t *testing.T) {
	d := mustBootstrap(t, testConfig(vfs.NewMem()))
	defer mustClose(t, d)
	if err := d.Append(entries(1, 5, 1), nil, true); err != nil {
		t.Fatal(err)
	}
	d.snap.index = 9
	if err := d.Compact(7); !errors.Is(err, raft.ErrUnavailable) {
		t.Errorf("compact to 7, and the log ends at 4: %v", err)
	}
	if first, _ := d.FirstIndex(); first != 1 {
		t.Errorf("the log begins at %d", first)
	}
}

// TestReclaim: on a full disk, and only there, a compaction takes the time to hand the space back.
// If that fails it is said, and the log is compacted all the same.
func TestReclaim(t *testing.T) {
	var log lockedBuffer
	var broken atomic.Pointer[Disk] // once its log is compacted to 7; Pebble may be at work before
	cfg := testConfig(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		d := broken.Load()
		if d == nil || op.Kind != errorfs.OpCreate || !strings.HasSuffix(op.Path, ".sst") {
			return nil
		}
		if first, _ := d.FirstIndex(); first != 8 {
			return nil
		}
		return syscall.EIO
	})))
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	d := mustBootstrap(t, cfg)
	if err := d.Append(entries(1, 20, 1), hardState(1, 1, 19), true); err != nil {
		t.Fatal(err)
	}
	if err := writeSnapshot(d, 19, 1); err != nil {
		t.Fatal(err)
	}
	for i, full := range []bool{false, true} {
		before := d.db.Metrics().Flush.Count
		d.space.full.Store(full)
		if err := d.Compact(uint64(5 + i)); err != nil {
			t.Error(err)
		}
		if flushed := d.db.Metrics().Flush.Count > before; flushed != full {
			t.Errorf("full %v: it was flushed: %v", full, flushed)
		}
	}
	if log.String() != "" {
		t.Errorf("the log says: %s", &log)
	}
	broken.Store(d)
	if err := d.Compact(7); err != nil {
		t.Error(err)
	}
	if first, _ := d.FirstIndex(); first != 8 {
		t.Errorf("the log begins at %d", first)
	}
	if err := d.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("close: %v", err)
	}
	if !strings.Contains(log.String(), "space could not be reclaimed") {
		t.Errorf("the log says: %s", &log)
	}
}

// TestFailsWhileWaiting: a call that waits for its turn to write returns the failure of a disk that
// fails meanwhile, and nothing that it would have written is believed.
func TestFailsWhileWaiting(t *testing.T) {
	for name, call := range map[string]func(d *Disk) error{
		"append":  func(d *Disk) error { return d.Append(entries(20, 21, 1), hardState(2, 2, 2), false) },
		"sync":    func(d *Disk) error { return d.Append(nil, nil, true) },
		"compact": func(d *Disk) error { return d.Compact(5) },
		"peers":   func(d *Disk) error { return d.SavePeers(Peers{Assembled: true}) },
		// It is on disk when it waits, to drop the log.
		"snapshot": func(d *Disk) error { return writeSnapshot(d, 30, 1) },
	} {
		d := mustBootstrap(t, testConfig(vfs.NewMem()))
		if err := d.Append(entries(1, 20, 1), hardState(1, 1, 19), true); err != nil {
			t.Fatal(err)
		}
		if err := writeSnapshot(d, 10, 1); err != nil {
			t.Fatal(err)
		}
		begun := inUse
		if name == "snapshot" {
			begun = func(d *Disk) bool {
				rec, closer, err := d.db.Get(keyManifest)
				if err != nil {
					return false
				}
				defer ignoreClose(closer)
				m, err := decodeManifest(rec)
				return err == nil && m.index == 30
			}
		}
		wantFailure(t, name, d, call, begun)
		hs, _, _ := d.InitialState()
		if u := d.Usage(); u.FirstIndex != 1 || u.LastIndex != 19 || hs.GetTerm() != 1 ||
			d.Peers().Assembled {
			t.Errorf("%s: the log is [%d, %d], the hard state %v, the peers %v", name,
				u.FirstIndex, u.LastIndex, hs, d.Peers())
		}
		_ = d.Close()
	}
	d := mustOpen(t, testConfig(vfs.NewMem()))
	wantFailure(t, "bootstrap", d, func(d *Disk) error {
		return d.Bootstrap(Identity{Member: 1}, nil)
	}, inUse)
	if _, done := d.Identity(); done {
		t.Error("it is bootstrapped")
	}
	_ = d.Close()
}

// inUse says whether a call goes on.
func inUse(d *Disk) bool {
	if !d.life.TryLock() {
		return true
	}
	d.life.Unlock()
	return false
}

// wantFailure lets the disk fail while a call waits for its turn.
func wantFailure(
	t *testing.T, name string, d *Disk, call func(d *Disk) error, begun func(d *Disk) bool,
) {
	t.Helper()
	d.write.Lock()
	result := make(chan error)
	go func() { result <- call(d) }()
	eventually(t, func() bool { return begun(d) })
	d.guard.fail(syscall.EIO)
	d.write.Unlock()
	if err := <-result; !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Errorf("%s: %v, want ErrFailed for EIO", name, err)
	}
}
