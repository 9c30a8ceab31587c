package storage

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3/raftpb"
)

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// TestSizes: what is left open follows the size of the disk.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		total                      uint64
		reserve, ballast, memtable int64
	}{
		{50 << 20, 16 << 20, 1 << 20, 4 << 20},
		{100 << 20, 16 << 20, 1 << 20, 4 << 20},
		{1 << 30, 1 << 30 / 20, 1 << 30 / 100, 1 << 30 / 80},
		{1 << 40, 256 << 20, 16 << 20, 64 << 20},
		{math.MaxUint64, 256 << 20, 16 << 20, 64 << 20},
	} {
		mem := vfs.NewMem()
		mem.TestingSetDiskUsage(vfs.DiskUsage{TotalBytes: c.total, AvailBytes: c.total})
		cfg := Config{FS: mem, Dir: "data"}
		s := newSpace(&cfg)
		if s.reserve != c.reserve || s.ballastBytes != c.ballast ||
			cfg.MemTableBytes != c.memtable {
			t.Errorf("disk of %d: %d, %d, %d", c.total, s.reserve, s.ballastBytes,
				cfg.MemTableBytes)
		}
		if need := 5 * cfg.MemTableBytes / 2; cfg.ReserveBytes < need {
			t.Errorf("disk of %d: reserve %d is less than a log file and a flush (%d)",
				c.total, cfg.ReserveBytes, need)
		}
	}
}

// TestRefusesEarly: with little space left, entries are refused and nothing is
// written, votes are not, and there is no failure; with room, all goes on.
func TestRefusesEarly(t *testing.T) {
	mem := vfs.NewMem()
	room := func(free uint64) {
		mem.TestingSetDiskUsage(vfs.DiskUsage{
			TotalBytes: 1 << 30, AvailBytes: free, UsedBytes: 1<<30 - free,
		})
	}
	room(1 << 30)
	cfg := testConfig(mem)
	cfg.ReserveBytes = 1 << 20
	d := mustBootstrap(t, cfg)
	if err := d.Append(entries(1, 3, 1), hardState(1, 1, 1), true); err != nil {
		t.Fatal(err)
	}
	room(1<<19 - 1)
	d.space.look()
	err := d.Append(entries(3, 5, 1), nil, true)
	if !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrFailed) {
		t.Errorf("got %v, want ErrNoSpace alone", err)
	}
	if last, _ := d.LastIndex(); last != 2 || !d.Usage().Full {
		t.Errorf("last index %d, usage %+v", last, d.Usage())
	}
	if err := d.Append(nil, hardState(2, 1, 1), true); err != nil {
		t.Errorf("a vote was refused: %v", err)
	}
	w, err := d.NewSnapshot(SnapshotMeta{Index: 1, Term: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write([]byte("x")); !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrFailed) {
		t.Errorf("snapshot: got %v, want ErrNoSpace alone", err)
	}
	w.Abort()
	room(1<<20 + 1) // not enough more: it must not flap
	d.space.look()
	if err := d.Append(entries(3, 5, 1), nil, true); !errors.Is(err, ErrNoSpace) {
		t.Errorf("got %v, want ErrNoSpace", err)
	}
	room(1 << 30)
	d.space.look()
	if err := d.Append(entries(3, 5, 1), nil, true); err != nil {
		t.Errorf("with room again: %v", err)
	}
	mustClose(t, d)

	// Opened on a full disk: it reads, and gives up the ballast to do so.
	room(1000)
	d = mustOpen(t, cfg)
	if _, err := mem.Stat("data/ballast"); err == nil {
		t.Error("the ballast is still there")
	}
	if es, err := d.Entries(1, 5, 1<<20); err != nil || len(es) != 4 {
		t.Errorf("%d entries, %v", len(es), err)
	}
	if err := d.Append(entries(5, 6, 1), nil, true); !errors.Is(err, ErrNoSpace) {
		t.Errorf("got %v, want ErrNoSpace", err)
	}
	room(1 << 30)
	d.space.look()
	if err := d.Append(entries(5, 6, 1), nil, true); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if _, err := mem.Stat("data/ballast"); err != nil {
		t.Errorf("the ballast is not back: %v", err)
	}
	mustClose(t, d)
}

// TestReservedAtZero: another program takes the last byte. What cannot wait, such as
// expiry, then goes into the room that the ballast leaves, until that is taken too.
func TestReservedAtZero(t *testing.T) {
	mem := vfs.NewMem()
	fs := &takenFS{FS: mem}
	fs.others.Store(0)
	cfg := testConfig(fs)
	cfg.ReserveBytes = 1 << 20
	d := mustBootstrap(t, cfg)
	defer mustClose(t, d)
	fs.others.Store(1<<30 - 64<<10) // all but the ballast
	d.space.look()
	if err := d.Append(entries(1, 2, 1), nil, true); !errors.Is(err, ErrNoSpace) {
		t.Errorf("got %v, want ErrNoSpace", err)
	}
	if err := d.AppendReserved(entries(1, 2, 1), nil); err != nil {
		t.Errorf("with the ballast: %v", err)
	}
	if _, err := mem.Stat("data/ballast"); err == nil {
		t.Error("the ballast is still there")
	}
	fs.others.Store(1 << 30)
	d.space.look()
	err := d.AppendReserved(entries(2, 3, 1), nil)
	if !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrFailed) {
		t.Errorf("with nothing left: got %v, want ErrNoSpace alone", err)
	}
	fs.others.Store(0)
	d.space.look()
	if err := d.Append(entries(2, 3, 1), nil, true); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// A takenFS is a disk of 1 GiB that other programs use as well.
type takenFS struct {
	vfs.FS
	others atomic.Uint64
}

func (f *takenFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	used := f.others.Load()
	if info, err := f.Stat("data/ballast"); err == nil {
		used += uint64(info.Size())
	}
	used = min(used, 1<<30)
	return vfs.DiskUsage{TotalBytes: 1 << 30, UsedBytes: used, AvailBytes: 1<<30 - used}, nil
}

// A boundedFS says that the disk holds as many bytes as capacity, and uses what
// its files add up to.
type boundedFS struct {
	vfs.FS
	capacity uint64
}

func (b boundedFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	used := min(b.size("data"), b.capacity)
	return vfs.DiskUsage{
		TotalBytes: b.capacity, UsedBytes: used, AvailBytes: b.capacity - used,
	}, nil
}

func (b boundedFS) size(path string) (sum uint64) {
	info, err := b.Stat(path)
	if err != nil {
		return 0
	}
	if !info.IsDir() {
		return uint64(info.Size())
	}
	names, _ := b.List(path)
	for _, n := range names {
		sum += b.size(b.PathJoin(path, n))
	}
	return sum
}

// eventually repeats f until Pebble's background work has made it true.
func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); runtime.Gosched() {
		if f() {
			return
		}
	}
	t.Fatal("never came true")
}

// TestRoomToFree: on a full disk clients may free space, but not with the last of the room, which
// is for what cannot wait.
func TestRoomToFree(t *testing.T) {
	mem := vfs.NewMem()
	room := func(free uint64) {
		mem.TestingSetDiskUsage(vfs.DiskUsage{TotalBytes: 1 << 30, AvailBytes: free})
	}
	room(1 << 30)
	for _, ballast := range []int64{-1, 1 << 18} {
		cfg := testConfig(mem)
		cfg.Dir, cfg.ReserveBytes, cfg.BallastBytes = fmt.Sprint("d", ballast), 1<<20, ballast
		d := mustBootstrap(t, cfg)
		last := uint64(1) << 19 // down to where AppendReserved writes
		if ballast > 0 {
			room(last - 1)
			d.space.look()
			if !d.HasRoomToFree() {
				t.Error("the ballast is there, and no room to free")
			}
			if !d.space.admitLast(0) || d.space.heavy { // gives up the ballast
				t.Error("the ballast was not given up")
			}
			last = uint64(ballast) / 4
		}
		room(last)
		d.space.look()
		if !d.space.admitLast(0) || d.HasRoomToFree() {
			t.Errorf("ballast %d: the last room is for clients", ballast)
		}
		room(1<<20 - 1<<18)
		d.space.look()
		if !d.HasRoomToFree() || d.HasRoom() {
			t.Errorf("ballast %d: no room to free", ballast)
		}
		room(1 << 30)
		d.space.look()
		mustClose(t, d)
	}
}

// TestOwnLogFillsDisk: a member whose own log filled the disk gets out of it by
// itself, with a snapshot and a compaction.
func TestOwnLogFillsDisk(t *testing.T) {
	cfg := testConfig(boundedFS{vfs.NewMem(), 16 << 20})
	cfg.ReserveBytes = 2 << 20
	d := mustBootstrap(t, cfg)
	defer mustClose(t, d)
	next := uint64(1)
	fill := func() {
		t.Helper()
		for range 10_000 {
			err := d.Append([]*raftpb.Entry{
				entry(next, 1, strings.Repeat("x", 10_000)),
			}, hardState(1, 1, next), true)
			if errors.Is(err, ErrNoSpace) && !errors.Is(err, ErrFailed) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			next++
		}
		t.Fatal("the disk is never full")
	}
	times := 6
	if testing.Short() {
		times = 2
	}
	for range times {
		fill()
		before := next
		// Pebble's own work may hold some of the reserve for a moment.
		eventually(t, func() bool {
			d.space.look()
			return writeSnapshot(d, next-1, 1, "state") == nil
		})
		if err := d.Compact(next - 1); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool {
			d.space.look()
			return d.space.admit(0)
		})
		fill()
		// How many depends on how far Pebble has come with giving space back.
		if next == before {
			t.Fatal("no more entries fit")
		}
	}
}

// TestBallast: when the disk is found full in the middle of a write, giving up
// the ballast lets that write end well; the next are refused until there is
// room.
func TestBallast(t *testing.T) {
	mem := vfs.NewMem()
	var full atomic.Bool
	inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpCreate) {
			if _, err := mem.Stat("data/ballast"); err == nil ||
				strings.HasSuffix(op.Path, "ballast") {
				return syscall.ENOSPC
			}
		}
		return nil
	})
	d := mustBootstrap(t, testConfig(errorfs.Wrap(mem, inject)))
	full.Store(true)
	if err := d.Append(entries(1, 10, 1), hardState(1, 1, 1), true); err != nil {
		t.Errorf("the ballast did not help: %v", err)
	}
	for range 2 {
		err := d.Append(entries(10, 11, 1), nil, true)
		if !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrFailed) {
			t.Errorf("got %v, want ErrNoSpace alone", err)
		}
	}
	full.Store(false)
	d.space.look()
	if err := d.Append(entries(10, 11, 1), nil, true); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if info, err := mem.Stat("data/ballast"); err != nil || info.Size() != 64<<10 {
		t.Errorf("the ballast is not back: %v", err)
	}
	mustClose(t, d)
}

// TestFailed: after a write that failed for good every call says so at once, with
// the cause, reads from memory still answer, and Close frees the directory.
func TestFailed(t *testing.T) {
	mem := vfs.NewMem()
	var broken atomic.Bool
	inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileSyncData {
			return syscall.EIO
		}
		return nil
	})
	cfg := testConfig(errorfs.Wrap(mem, inject))
	d := mustBootstrap(t, cfg)
	if err := d.Append(entries(1, 5, 1), hardState(1, 1, 1), true); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	err := d.Append(entries(5, 7, 1), nil, true)
	if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) || errors.Is(err, ErrNoSpace) {
		t.Errorf("got %v, want ErrFailed for EIO", err)
	}
	if last, _ := d.LastIndex(); last != 4 {
		t.Errorf("last index %d: the failed entries are visible", last)
	}
	broken.Store(false) // the disk works again, but what it holds is not known
	for name, f := range map[string]func() error{
		"append":   func() error { return d.Append(entries(5, 6, 1), nil, false) },
		"flush":    d.Flush,
		"compact":  func() error { return d.Compact(1) },
		"snapshot": func() error { return writeSnapshot(d, 2, 1) },
		"read":     func() error { _, _, err := readSnapshot(d); return err },
	} {
		if err := f(); !errors.Is(err, ErrFailed) {
			t.Errorf("%s: got %v, want ErrFailed", name, err)
		}
	}
	if err := d.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("close: %v", err)
	}
	d = mustOpen(t, cfg)
	if last, _ := d.LastIndex(); last != 4 && last != 6 {
		t.Errorf("last index %d after reopening, want 4 or 6", last)
	}
	mustClose(t, d)
}
