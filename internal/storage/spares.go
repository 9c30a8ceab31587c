package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// maxSpares is the number of segments that are kept as spares when the log gets shorter.
	maxSpares = 3

	// spareRetry is the interval between attempts to make a spare.
	spareRetry = time.Second
)

// spares prepares the next segments on its own goroutine, from zeros or from segments that the log
// no longer needs. Each spare is open, and its name is durable. If there is no spare and none can
// be made, the disk is considered full, and only the rest of the current segment is left. All
// errors are handled this way, because a spare contains nothing that was acknowledged, and the next
// attempt makes it again.
type spares struct {
	fs     FS
	path   func(name string) string
	dir    Dir // set before start
	size   int64
	inline bool
	logger *slog.Logger

	last uint64 // number of the newest spare, or of the current segment

	mu      sync.Mutex // guards the fields below
	changed sync.Cond
	ready   []*segment // sorted by number
	err     error      // reason why the last attempt to make one failed
	freed   []*segment

	wake  chan struct{}
	quit  chan struct{}
	ended chan struct{} // nil before start is called
}

func newSpares(cfg *Config, path func(name string) string) *spares {
	s := &spares{
		fs: cfg.FS, path: path, size: cfg.SegmentBytes, inline: cfg.inline,
		logger: cfg.Logger, wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	s.changed.L = &s.mu
	return s
}

// start starts the goroutine.
func (s *spares) start() {
	if s.inline {
		s.tend()
		return
	}
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		for {
			var retry <-chan time.Time
			if s.tend() != nil {
				retry = time.After(spareRetry)
			}
			select {
			case <-s.wake:
			case <-retry:
			case <-s.quit:
				return
			}
		}
	}()
}

// stop ends the goroutine. It must be called only once.
func (s *spares) stop() {
	close(s.quit)
	if s.ended != nil {
		<-s.ended
	}
	for _, f := range append(s.ready, s.freed...) {
		ignoreClose(f.file)
	}
}

func (s *spares) kick() {
	if s.inline {
		_ = s.tend()
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// bytes returns the size of all spares.
func (s *spares) bytes() int64 { return int64(s.count()) * s.size }

// state reports whether there is a spare. If there is none because the last attempt to make one
// failed, it returns the reason as an ErrNoSpace.
func (s *spares) state() (ready bool, err error) {
	s.mu.Lock()
	ready, err = len(s.ready) > 0, s.fullLocked()
	s.mu.Unlock()
	if err != nil && s.inline && s.tend() == nil {
		return true, nil
	}
	return ready, err
}

func (s *spares) fullLocked() error {
	if len(s.ready) > 0 || s.err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNoSpace, s.err)
}

// take returns the next segment. It waits if one is being made.
func (s *spares) take() (*segment, error) {
	defer s.kick()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.ready) == 0 && s.err == nil {
		s.changed.Wait()
	}
	if err := s.fullLocked(); err != nil {
		return nil, err
	}
	next := s.ready[0]
	s.ready = s.ready[1:]
	return next, nil
}

// freedLocked removes and returns the segments that the log durably no longer needs.
func (d *Disk) freedLocked() []*segment {
	n := 0
	for n < len(d.segments)-1 && d.segments[n].number < d.mark.segment {
		n++
	}
	freed := slices.Clone(d.segments[:n])
	d.segments = slices.Delete(d.segments, 0, n)
	return freed
}

// recycle turns segments that the log durably no longer needs into spares, or removes them.
func (s *spares) recycle(freed []*segment) {
	if len(freed) == 0 {
		return
	}
	s.mu.Lock()
	s.freed = append(s.freed, freed...)
	s.mu.Unlock()
	s.kick()
}

// tend recycles segments, and makes a spare if there is none.
func (s *spares) tend() error {
	s.mu.Lock()
	freed := s.freed
	s.freed = nil
	s.mu.Unlock()
	for _, f := range freed {
		s.reuse(f)
	}
	var err error
	if s.count() == 0 {
		err = s.create()
	}
	s.mu.Lock()
	was := s.err
	s.err = err
	s.changed.Broadcast()
	s.mu.Unlock()
	switch {
	case err != nil && was == nil:
		s.logger.Error("storage: cannot create a spare segment: writes are rejected until this succeeds",
			"dir", s.path(""), "bytes", s.size, "error", err.Error())
	case err == nil && was != nil:
		s.logger.Info("storage: a spare segment is available again", "dir", s.path(""))
	}
	return err
}

func (s *spares) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ready)
}

func (s *spares) file(number uint64) string { return s.path(segmentName(number)) }

// add adds a file as the last spare. The file must have the next number.
func (s *spares) add(f File) {
	s.last++
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, &segment{number: s.last, size: s.size, file: f})
}

// drop closes a file and removes it.
func (s *spares) drop(f File, number uint64) {
	ignoreClose(f)
	if err := s.fs.Remove(s.file(number)); err != nil { // otherwise the next Open removes it
		s.logger.Warn("storage: cannot remove a file", "path", s.file(number), "error", err.Error())
	}
}

// create makes the next segment, filled with zeros.
func (s *spares) create() error {
	name := s.file(s.last + 1)
	f, err := s.fs.Create(name, s.size)
	if err == nil {
		if err = errors.Join(f.Sync(), s.dir.Sync()); err != nil {
			ignoreClose(f)
		}
	}
	if err != nil {
		_ = s.fs.Remove(name) // the next Open removes leftovers
		return fmt.Errorf("create %s (%d bytes): %w", name, s.size, err)
	}
	s.add(f)
	return nil
}

// reuse gives a segment the next number. If the segment is damaged, or there are enough spares, it
// removes the segment instead. A crash can restore the old name of a reused segment. In that case,
// Open removes the file.
func (s *spares) reuse(old *segment) {
	// old.number must not change, because old may still be read
	number, name := s.last+1, old.number
	switch {
	case old.size != s.size || s.count() >= maxSpares:
	case !s.sound(old.file, number):
		s.logger.Warn("storage: a segment that the log no longer needs is unreadable or damaged",
			"path", s.file(old.number))
	default:
		err := s.fs.Rename(s.file(old.number), s.file(number))
		if err == nil {
			name = number
			err = s.dir.Sync()
		}
		if err == nil {
			s.add(old.file)
			return
		}
		s.logger.Warn("storage: cannot recycle a segment", "path", s.file(number), "error",
			err.Error())
	}
	s.drop(old.file, name)
}

// sound reports whether every sector of a file is zero or belongs to a segment with a lower number.
// Any other sector would count as damage in the new segment.
func (s *spares) sound(f File, number uint64) bool {
	m := image{number: number}
	for b := make([]byte, min(s.size, 1<<20)); m.base < s.size; m.base = m.end() {
		m.b = b[:min(s.size-m.base, int64(len(b)))]
		if _, err := f.ReadAt(m.b, m.base); err != nil || m.has(own) || m.has(damaged) {
			return false
		}
	}
	return true
}
