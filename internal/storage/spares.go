package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// maxSpares is how many segments are kept when the log gets shorter.
	maxSpares = 3

	// spareRetry is how often a full disk is tried again.
	spareRetry = time.Second

	sparePrefix = "spare-"
	largeSpare  = sparePrefix + "large"
)

// spares makes segments ahead, or keeps those that the log no longer needs, on a goroutine of its
// own. While there is none, and none can be made, the disk is full: the current segment has what
// is left.
type spares struct {
	fs     FS
	dir    string
	size   int64
	inline bool
	logger *slog.Logger

	mu      sync.Mutex // guards what follows
	names   []string
	next    int           // number of the next name
	err     error         // why the last attempt to make one failed
	attempt chan struct{} // closed at the end of the current attempt
	freed   []segment

	wake  chan struct{}
	quit  chan struct{}
	ended chan struct{} // nil before start
}

func newSpares(cfg *Config) *spares {
	return &spares{
		fs: cfg.FS, dir: filepath.Join(cfg.Dir, logDir), size: cfg.SegmentBytes, inline: cfg.inline,
		logger: cfg.Logger, attempt: make(chan struct{}),
		wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
}

// start begins to make spares, of which some exist, and recycles segments.
func (s *spares) start(names []string, freed []segment) {
	s.names, s.freed, s.next = names, freed, 0
	for _, n := range names {
		var number int
		if _, err := fmt.Sscanf(n, sparePrefix+"%d", &number); err == nil {
			s.next = max(s.next, number+1)
		}
	}
	if s.inline {
		s.tend()
		return
	}
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		for {
			s.tend()
			select {
			case <-s.wake:
			case <-s.retry():
			case <-s.quit:
				return
			}
		}
	}()
}

// retry returns when to try again after a failure.
func (s *spares) retry() <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return time.After(spareRetry)
}

// stop ends the goroutine. It is called once.
func (s *spares) stop() {
	close(s.quit)
	if s.ended != nil {
		<-s.ended
	}
}

func (s *spares) kick() {
	if s.inline {
		s.tend()
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// usage returns how many bytes the spares have, and whether the disk is full.
func (s *spares) usage() (bytes int64, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.names)) * s.size, s.fullLocked()
}

func (s *spares) fullLocked() bool { return len(s.names) == 0 && isFull(s.err) }

// full reports whether there is no spare, and no space for one.
func (s *spares) full() bool {
	_, full := s.usage()
	if full && s.inline {
		s.tend()
		_, full = s.usage()
	}
	return full
}

// take returns a spare, for which it waits while one is being made. If the last attempt failed for
// another reason than space, it waits for one more.
func (s *spares) take() (string, error) {
	defer s.kick()
	for again := true; ; {
		s.mu.Lock()
		if n := len(s.names); n > 0 {
			name := s.names[n-1]
			s.names = s.names[:n-1]
			s.mu.Unlock()
			return name, nil
		}
		err, attempt := s.err, s.attempt
		s.mu.Unlock()
		if err != nil && (isFull(err) || !again) {
			return "", classify(fmt.Errorf("make a spare segment in %s: %w", s.dir, err))
		}
		again = again && err == nil
		s.kick()
		select {
		case <-attempt:
		case <-s.quit:
			return "", errClosed
		}
	}
}

// giveBack returns a spare that take returned, and to which nothing was written.
func (s *spares) giveBack(name string) {
	if name == largeSpare { // the next one is made in its place
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
}

// large makes a segment of another size.
func (s *spares) large(size int64) (string, error) {
	if err := s.create(largeSpare, size); err != nil {
		return "", classify(fmt.Errorf("make a segment of %d bytes in %s: %w", size, s.dir, err))
	}
	return largeSpare, nil
}

// create makes a file of zeros, durably but for its name: who renames it, syncs the directory.
func (s *spares) create(name string, size int64) error {
	path := filepath.Join(s.dir, name)
	f, err := s.fs.Create(path, size)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		_ = s.fs.Remove(path) // what stays is removed by the next Open
	}
	return err
}

// recycle makes spares of segments, or removes them.
func (s *spares) recycle(freed []segment) {
	if len(freed) == 0 {
		return
	}
	s.mu.Lock()
	s.freed = append(s.freed, freed...)
	s.mu.Unlock()
	s.kick()
}

// tend recycles what there is, and makes a spare if there is none.
func (s *spares) tend() {
	s.mu.Lock()
	freed := s.freed
	s.freed = nil
	s.mu.Unlock()
	s.reuse(freed)
	s.mu.Lock()
	have, was := len(s.names), isFull(s.err)
	name := s.nameLocked()
	s.mu.Unlock()
	var err error
	if have == 0 {
		err = s.create(name, s.size)
	}
	s.mu.Lock()
	if s.err = err; err == nil && have == 0 {
		s.names = append(s.names, name)
	}
	close(s.attempt)
	s.attempt = make(chan struct{})
	s.mu.Unlock()
	switch full := isFull(err); {
	case full && !was:
		s.logger.Error("storage: no space for a spare segment: writes are refused", "dir", s.dir,
			"bytes", s.size)
	case was && !full && err == nil:
		s.logger.Info("storage: there is a spare segment again: writes are accepted", "dir", s.dir)
	case err != nil && !full:
		s.logger.Warn("storage: cannot make a spare segment", "dir", s.dir, "error", err.Error())
	}
}

func (s *spares) nameLocked() string {
	s.next++
	return fmt.Sprintf("%s%d", sparePrefix, s.next-1)
}

// sound reports whether a file has the size of a segment, and every sector is zeros or of a segment
// before number. In a segment, any other sector would be damage.
func (s *spares) sound(name string, number uint64) bool {
	f, err := s.fs.Open(filepath.Join(s.dir, name))
	if err != nil {
		return false
	}
	defer ignoreClose(f)
	if size, err := f.Size(); size != s.size || err != nil {
		return false
	}
	m := image{number: number}
	for b := make([]byte, min(s.size, 1<<20)); m.base < s.size; m.base = m.end() {
		m.b = b[:min(s.size-m.base, int64(len(b)))]
		if _, err := f.ReadAt(m.b, m.base); err != nil {
			return false
		}
		for at := m.base; at < m.end(); at += sectorBytes {
			if state, _, _, _ := m.sector(at); state != empty && state != old {
				return false
			}
		}
	}
	return true
}

// reuse renames segments, which are durably out of the log, to spares, or removes those that are
// damaged or too many. A crash can bring back the old name of one, which Open then removes.
func (s *spares) reuse(freed []segment) {
	var names []string
	for _, f := range freed {
		path := filepath.Join(s.dir, segmentName(f.number))
		s.mu.Lock()
		keep, name := f.size == s.size && len(s.names)+len(names) < maxSpares, s.nameLocked()
		s.mu.Unlock()
		if keep && !s.sound(segmentName(f.number), f.number+1) {
			s.logger.Warn("storage: a segment that the log no longer needs is unreadable or damaged",
				"path", path)
			keep = false
		}
		err := error(nil)
		if keep {
			err = s.fs.Rename(path, filepath.Join(s.dir, name))
		} else {
			err = s.fs.Remove(path)
		}
		if err != nil {
			s.logger.Warn("storage: a segment cannot be recycled", "path", path, "error", err.Error())
		} else if keep {
			names = append(names, name)
		}
	}
	s.mu.Lock()
	s.names = append(s.names, names...)
	s.mu.Unlock()
}

// isSpare reports whether a file is one, or was to become one.
func isSpare(name string) bool { return strings.HasPrefix(name, sparePrefix) }
