package storage

import (
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// The free space is looked at again after this long, or this many bytes (or
	// an eighth of the reserve): few against the reserve, as the time is against
	// what other programs can write in it.
	spaceInterval = 100 * time.Millisecond
	spaceBytes    = 4 << 20

	minReserveBytes  = 16 << 20
	minBallastBytes  = 1 << 20
	minMemTableBytes = 4 << 20
)

// A space watches how much room the disk has, and keeps the ballast. It uses the
// file system behind the guard.
type space struct {
	fs      vfs.FS
	dir     string
	ballast string // path
	log     *slog.Logger

	reserve      int64 // <= 0: not watched
	ballastBytes int64 // <= 0: none

	free atomic.Uint64
	full atomic.Bool

	mu      sync.Mutex // guards what follows
	checked time.Time
	pending int64 // bytes written since checked
	heavy   bool  // the ballast is there
}

// Room returns how many bytes are free on the disk of a data directory, and how many of them a
// member keeps back: it refuses writes when fewer are left.
func Room(dir string) (free, reserve uint64, err error) {
	usage, err := vfs.Default.GetDiskUsage(dir)
	return usage.AvailBytes, uint64(reserveOf(int64(min(usage.TotalBytes, math.MaxInt64)))), err
}

// reserveOf is the reserve of a disk of so many bytes.
func reserveOf(total int64) int64 {
	return min(max(total/20, minReserveBytes), defaultReserveBytes)
}

// newSpace sets the sizes that cfg leaves open by the size of the disk.
func newSpace(cfg *Config) *space {
	s := &space{
		fs: cfg.FS, dir: cfg.Dir, ballast: cfg.FS.PathJoin(cfg.Dir, "ballast"),
		log: cfg.Logger,
	}
	s.free.Store(math.MaxUint64)
	total := int64(math.MaxInt64)
	usage, err := cfg.FS.GetDiskUsage(cfg.Dir)
	if err == nil {
		total = int64(min(usage.TotalBytes, math.MaxInt64))
	}
	if cfg.ReserveBytes == 0 {
		cfg.ReserveBytes = reserveOf(total)
	}
	if cfg.BallastBytes == 0 {
		cfg.BallastBytes = min(max(total/100, minBallastBytes), defaultBallastBytes)
	}
	if cfg.MemTableBytes == 0 {
		cfg.MemTableBytes = min(max(total/80, minMemTableBytes), defaultMemTableBytes)
	}
	s.reserve, s.ballastBytes = cfg.ReserveBytes, cfg.BallastBytes
	if err != nil {
		s.reserve = 0 // a file system that cannot tell is not asked again
	}
	return s
}

// open looks at the disk for the first time, and makes the ballast, or gives it
// up if there is little room: opening needs some.
func (s *space) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.fs.Stat(s.ballast)
	s.heavy = err == nil
	s.measureLocked(time.Now())
	if s.full.Load() {
		s.dropLocked()
	} else {
		s.makeLocked()
	}
}

// admit reports whether n more bytes may be written to the log. It asks the file
// system only now and then.
func (s *space) admit(n int) bool {
	if s.reserve <= 0 && !s.full.Load() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refreshLocked(n)
	if s.full.Load() {
		s.pending -= int64(n)
		return false
	}
	return true
}

// admitLast is admitReserved for what cannot wait for room at all. If another program
// has taken the reserve as well, it gives up the ballast, and leaves a quarter of that
// to Pebble.
func (s *space) admitLast(n int) bool {
	if s.admitReserved(n) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropLocked() {
		s.measureLocked(time.Now())
		s.pending += int64(n)
	}
	return s.ballastBytes > 0 && s.leftLocked() >= uint64(s.ballastBytes)/4
}

// admitReserved is admit for n bytes that may use half of the reserve: of a
// snapshot, which lets the log be compacted when the log filled the disk.
func (s *space) admitReserved(n int) bool {
	if s.reserve <= 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refreshLocked(n)
	return s.leftLocked() >= uint64(s.reserve)/2
}

// roomToFree reports whether what clients ask for to make room may be written. It may use what
// admitLast may use, but for the end of it: that is kept for what cannot wait, such as expiry.
func (s *space) roomToFree() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refreshLocked(0)
	switch left := s.leftLocked(); {
	case s.reserve <= 0, left >= uint64(s.reserve)*3/4, s.heavy:
		return true
	default:
		return s.ballastBytes > 0 && left >= uint64(s.ballastBytes)*5/8
	}
}

// leftLocked returns what is free beside what was admitted since the last look.
func (s *space) leftLocked() uint64 {
	return s.free.Load() - min(uint64(s.pending), s.free.Load())
}

// refreshLocked counts n bytes that are about to be written, and measures if it is time.
func (s *space) refreshLocked(n int) {
	s.pending += int64(n)
	now := time.Now()
	if s.pending >= min(spaceBytes, s.reserve/8) || now.Sub(s.checked) >= spaceInterval {
		s.measureLocked(now)
		s.pending = int64(n)
	}
}

// measureLocked asks the file system, and enters or leaves the full state. It is
// left only with an eighth more than the reserve, and the ballast in its place,
// so that it does not flap.
func (s *space) measureLocked(now time.Time) {
	s.checked, s.pending = now, 0
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil {
		// Without an answer, the ballast is what is left to go by.
		if s.full.Load() {
			s.full.Store(!s.makeLocked())
		}
		return
	}
	s.free.Store(usage.AvailBytes)
	free := int64(min(usage.AvailBytes, math.MaxInt64))
	switch was := s.full.Load(); {
	case !was && free < s.reserve:
		s.full.Store(true)
		s.log.Error("disk is almost full: writes are refused",
			"dir", s.dir, "free_bytes", free, "reserve_bytes", s.reserve)
	case was:
		if !s.heavy {
			free -= s.ballastBytes
		}
		if free >= s.reserve+s.reserve/8 && s.makeLocked() {
			s.full.Store(false)
			s.log.Info("disk has room again: writes are accepted", "dir", s.dir)
		}
	}
}

// relieve is the guard's answer to a full disk: the ballast goes, and writes are
// refused until there is room.
func (s *space) relieve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full.Store(true)
	s.checked = time.Now()
	if usage, err := s.fs.GetDiskUsage(s.dir); err == nil {
		s.free.Store(usage.AvailBytes)
	}
	return s.dropLocked()
}

// dropLocked removes the ballast, and reports whether there was one.
func (s *space) dropLocked() bool {
	if !s.heavy {
		return false
	}
	s.heavy = false
	if err := s.fs.Remove(s.ballast); err != nil {
		s.log.Error("ballast cannot be removed", "path", s.ballast, "error", err)
		return false
	}
	s.log.Warn("disk is full: ballast removed", "path", s.ballast)
	return true
}

// makeLocked makes the ballast if there is none, and reports whether it is
// there, or need not be.
func (s *space) makeLocked() bool {
	if s.heavy || s.ballastBytes <= 0 {
		return true
	}
	if err := s.writeBallast(); err != nil {
		_ = s.fs.Remove(s.ballast)
		s.log.Warn("ballast cannot be made", "path", s.ballast, "error", err)
		return !isFull(err)
	}
	s.heavy = true
	return true
}

// writeBallast really writes: some file systems keep no promise made by
// fallocate.
func (s *space) writeBallast() error {
	f, err := s.fs.Create(s.ballast, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for left := s.ballastBytes; left > 0 && err == nil; left -= int64(len(zeros)) {
		_, err = f.Write(zeros[:min(left, int64(len(zeros)))])
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
