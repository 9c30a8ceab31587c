package storage

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A metered is a space, and what it asks and says.
type metered struct {
	*space
	*toldFS
	text bytes.Buffer
	free uint64
	err  error // of the file system, asked for the free space
}

// GetDiskUsage implements vfs.FS.
func (m *metered) GetDiskUsage(string) (vfs.DiskUsage, error) {
	m.told = append(m.told, errorfs.Op{Kind: errorfs.OpGetDiskUsage})
	return vfs.DiskUsage{TotalBytes: 1 << 30, AvailBytes: m.free}, m.err
}

func newMetered(t *testing.T, reserve, ballast int64) *metered {
	t.Helper()
	m := &metered{toldFS: newToldFS(), free: 1 << 30}
	if err := m.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	m.space = newSpace(&Config{
		FS: m, Dir: "data", ReserveBytes: reserve, BallastBytes: ballast,
		Logger: slog.New(slog.NewTextHandler(&m.text, nil)),
	})
	m.space.open()
	m.told = nil
	return m
}

// asked says how often the file system was asked since the last time.
func (m *metered) asked() int {
	n := m.count(errorfs.OpGetDiskUsage)
	m.told = nil
	return n
}

// set says how much is free, and lets the space look.
func (m *metered) set(free uint64) {
	m.free = free
	m.measureLocked(time.Now())
}

// says tells how often the log has a text.
func (m *metered) says(text string) int { return strings.Count(m.text.String(), text) }

// TestSpaceAsks: the file system is asked after so many bytes, or so long, and not before. What was
// refused does not count. Without a reserve it is not asked, unless the disk was found full.
func TestSpaceAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for reserve, bytes := range map[int64]int{800: 100, 1 << 28: spaceBytes} {
			m := newMetered(t, reserve, -1)
			if m.admit(bytes - 1); m.asked() != 0 {
				t.Errorf("reserve %d: asked too early", reserve)
			}
			if m.admit(1); m.asked() != 1 || m.pending != 1 {
				t.Errorf("reserve %d: not asked after %d bytes", reserve, bytes)
			}
			if time.Sleep(spaceInterval - 1); !m.admit(1) || m.asked() != 0 {
				t.Errorf("reserve %d: asked too soon", reserve)
			}
			if time.Sleep(time.Nanosecond); !m.admit(1) || m.asked() != 1 {
				t.Errorf("reserve %d: not asked after a while", reserve)
			}
			m.set(0)
			if m.admit(10) || m.admit(20) || m.pending != 0 {
				t.Errorf("reserve %d: %d bytes count that were refused", reserve, m.pending)
			}
			m.told = nil
			time.Sleep(spaceInterval)
			if m.admit(10) || m.asked() != 1 || m.pending != 0 {
				t.Errorf("reserve %d: %d bytes count that were refused after a look",
					reserve, m.pending)
			}
		}
		m := newMetered(t, 0, -1)
		m.reserve = 0
		if !m.admit(1<<20) || !m.admitReserved(1<<20) || m.asked() != 0 {
			t.Error("asked without a reserve")
		}
		if m.reserve = -1; !m.roomToFree() {
			t.Error("no room to free without a reserve")
		}
		m.reserve = 0
		m.told, m.free = nil, 7
		time.Sleep(spaceInterval)
		if m.relieve(); m.space.free.Load() != 7 {
			t.Error("what is free is not known after the disk was found full")
		}
		m.free = 1 << 30
		if m.asked() != 1 || m.admit(-1) || m.asked() != 0 {
			t.Error("after the disk was found full it was asked again at once, or something admitted")
		}
		if time.Sleep(spaceInterval); !m.admit(0) || m.asked() != 1 {
			t.Error("a disk that was found full stays full")
		}
	})
}

// TestSpaceBounds: with how many bytes free the disk is full, and when it is not any more, to the
// byte. It is said when that changes, and not else. Where nobody can tell, the ballast does.
func TestSpaceBounds(t *testing.T) {
	const reserve, ballast = 800, 160
	for _, has := range []bool{true, false} {
		m := newMetered(t, reserve, ballast)
		back := uint64(reserve + reserve/8)
		steps := []struct {
			free uint64
			full bool
		}{
			{math.MaxUint64, false},
			{reserve, false},
			{reserve - 1, true},
			{reserve - 2, true},
			{back - 1, true},
			{back, false},
			{back, false},
		}
		if !has {
			m.full.Store(true)
			m.dropLocked()
			steps = append(steps[:0], struct {
				free uint64
				full bool
			}{back + ballast - 1, true}, struct {
				free uint64
				full bool
			}{back + ballast, false})
		}
		for _, c := range steps {
			if m.set(c.free); m.full.Load() != c.full || m.space.free.Load() != c.free {
				t.Errorf("ballast %v, %d bytes free: full is %v", has, c.free, !c.full)
			}
		}
		if m.says("almost full") > 1 || m.says("room again") != 1 || !m.heavy {
			t.Errorf("ballast %v: the log says %s", has, &m.text)
		}
	}
	m := newMetered(t, reserve, ballast)
	m.set(1000)
	m.err = syscall.ENOSYS
	if m.set(1); m.full.Load() || m.space.free.Load() != 1000 {
		t.Error("full, and nobody can tell")
	}
	if m.relieve(); !m.full.Load() || m.heavy || m.space.free.Load() != 1000 {
		t.Error("not relieved where nobody can tell")
	}
	if m.set(1); m.full.Load() || !m.heavy {
		t.Error("the ballast is back, and it is full")
	}
	m.relieve()
	m.toldFS.fail = func(errorfs.Op) error { return syscall.ENOSPC }
	if m.set(1); !m.full.Load() || m.heavy {
		t.Error("the ballast is not back, and it is not full")
	}
	m.err = nil
	if m.set(1 << 20); !m.full.Load() {
		t.Error("the ballast cannot be made, and it is not full")
	}
	m = newMetered(t, reserve, ballast)
	m.dropLocked()
	m.err = syscall.ENOSYS
	if m.set(1); m.full.Load() || m.heavy {
		t.Error("nobody can tell, and it was not full: the ballast is made again, or it is full")
	}
}

// TestSpaceUnknown: a file system that cannot tell what is free is not asked again, and sizes are
// as on a large disk.
func TestSpaceUnknown(t *testing.T) {
	m := &metered{toldFS: newToldFS(), err: syscall.ENOSYS}
	cfg := Config{FS: m, Dir: "data"}
	s := newSpace(&cfg)
	if s.reserve != 0 || s.free.Load() != math.MaxUint64 || cfg.ReserveBytes != defaultReserveBytes ||
		cfg.BallastBytes != defaultBallastBytes || cfg.MemTableBytes != defaultMemTableBytes {
		t.Errorf("%+v, %+v", s, cfg)
	}
	if free, reserve, err := Room(t.TempDir()); free == 0 || reserve < minReserveBytes || err != nil {
		t.Errorf("a real directory: %d, %d, %v", free, reserve, err)
	}
	if _, _, err := Room("no/such/directory"); err == nil {
		t.Error("there is room in no directory")
	}
}

// TestSpaceLast: what cannot wait may use half of the reserve, and then all of the ballast but a
// quarter. What frees space may not use the last quarter of the first half, nor of the other
// more than three eighths.
func TestSpaceLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which it is never time to look again
		const reserve, ballast = 800, 160
		m := newMetered(t, reserve, ballast)
		if m.set(reserve/2 + 10); !m.admitReserved(10) || m.admitReserved(1) || m.pending != 11 {
			t.Errorf("half of the reserve: %d bytes count", m.pending)
		}
		if m.set(reserve - 1); m.admit(reserve/8) || !m.admitReserved(1) {
			t.Error("what was refused after a look takes the reserve")
		}
		if m.set(reserve/2 + 99); m.admitReserved(reserve / 8) {
			t.Error("what is admitted after a look does not count")
		}
		if m.set(reserve / 2); !m.admitLast(0) || !m.heavy || !m.roomToFree() {
			t.Error("the ballast went while there was room")
		}
		if m.set(0); !m.roomToFree() {
			t.Error("no room to free, and the ballast is there")
		}
		if m.set(ballast/4 + 10); !m.admitLast(10) || m.heavy || m.pending != 10 || m.asked() == 0 {
			t.Errorf("the ballast is not used, or %d bytes count", m.pending)
		}
		if m.admitLast(1) {
			t.Error("the end of the ballast is used")
		}
		for free, want := range map[uint64]bool{
			ballast*5/8 - 1: false, ballast * 5 / 8: true, reserve * 3 / 4: true,
		} {
			if m.set(free); m.roomToFree() != want {
				t.Errorf("%d bytes free: room to free is %v", free, !want)
			}
		}
		m = newMetered(t, reserve, -1)
		m.set(reserve/2 - 1)
		if m.admitLast(0) || m.roomToFree() || m.relieve() || m.text.Len() == 0 {
			t.Error("there is no ballast, and it is used")
		}
		if m.set(reserve * 3 / 4); !m.roomToFree() {
			t.Error("without a ballast: no room to free")
		}
		if m.says("ballast") > 0 {
			t.Errorf("without a ballast the log says %s", &m.text)
		}
	})
}

// TestBallastFile: the ballast is written, all of it, and synced, once. What cannot be written does
// not stay, and counts as no room if the disk is full.
func TestBallastFile(t *testing.T) {
	const size = 3<<20 + 5
	m := newMetered(t, 800, size)
	if info, err := m.Stat("data/ballast"); err != nil || info.Size() != size {
		t.Errorf("%v, %v", info, err)
	}
	m.told = nil
	if !m.makeLocked() || len(m.told) > 0 {
		t.Errorf("it is made again: %v", m.told)
	}
	for _, kind := range []errorfs.OpKind{
		errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync,
	} {
		for _, cause := range []error{syscall.EIO, syscall.EDQUOT} {
			if m.dropLocked(); m.heavy {
				t.Fatal("the ballast cannot be dropped")
			}
			m.told, m.fail = nil, func(op errorfs.Op) error {
				if op.Kind == kind {
					return cause
				}
				return nil
			}
			if m.makeLocked() == isFull(cause) || m.heavy || m.count(kind) != 1 {
				t.Errorf("%v of kind %d: tried %d times", cause, kind, m.count(kind))
			}
			if _, err := m.Stat("data/ballast"); err == nil {
				t.Errorf("%v of kind %d: half a ballast is there", cause, kind)
			}
			if m.fail = nil; !m.makeLocked() || m.count(errorfs.OpFileSync) == 0 {
				t.Error("the ballast is not made, or not synced")
			}
		}
	}
	m.fail = func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRemove {
			return syscall.EIO
		}
		return nil
	}
	if m.relieve() || m.says("cannot be removed") != 1 || errors.Is(m.err, syscall.EIO) {
		t.Error("a ballast that stays makes room")
	}
}
