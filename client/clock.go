package client

import (
	"sync"
	"time"

	"leasehold.dev/lease"
)

// clock counts the time that has passed since it was made, time in which the machine was
// suspended included. Go's monotonic clock stops then and the wall clock does not, but
// the wall clock can be set. So from one reading to the next the clock goes forward by
// what the faster of the two has done: too fast ends validity early, which is safe, and it
// is never slower than the monotonic clock.
type clock struct {
	source func() time.Time

	mu      sync.Mutex // guards what follows
	last    time.Time
	elapsed time.Duration
}

// newClock returns a clock that reads source, or time.Now if that is nil.
func newClock(source func() time.Time) *clock {
	if source == nil {
		source = time.Now
	}
	return &clock{source: source, last: source()}
}

// read returns what has passed.
func (c *clock) read() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readLocked()
}

func (c *clock) readLocked() time.Duration {
	now := c.source()
	c.elapsed += step(now.Sub(c.last), now.Round(0).Sub(c.last.Round(0)))
	c.last = now
	return c.elapsed
}

// step is by how much the clock goes forward if the monotonic clock and the wall clock
// went forward by so much.
func step(monotonic, wall time.Duration) time.Duration { return max(monotonic, wall, 0) }

// window is a stretch of time for callers that must not wait for the clock.
type window struct {
	base time.Time
	wall int64 // of base, in nanoseconds
	left time.Duration
}

// within reports whether a moment lies in the window.
func (w *window) within(now time.Time) bool {
	return step(now.Sub(w.base), time.Duration(now.UnixNano()-w.wall)) < w.left
}

// window returns the time from now until an instant.
func (c *clock) window(until lease.Instant) *window {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.untilLocked(until)
	return &window{base: c.last, wall: c.last.UnixNano(), left: left}
}

// now returns the reading as package holder has it.
func (c *clock) now() lease.Instant { return instantOf(c.read()) }

// moment is an instant with the clock that it is of: clients' clocks begin with them.
type moment struct {
	clock *clock
	at    lease.Instant
}

func (c *clock) moment() moment { return moment{c, c.now()} }

// instant returns when on this clock a moment was, rounded down. It is below 0 if that was
// before the clock began. A moment of no clock was when this one began.
func (c *clock) instant(m moment) lease.Instant {
	if m.clock == c || m.clock == nil {
		return m.at
	}
	now := c.read() // before the other, so that what passes in between makes it earlier
	d := now + m.clock.until(m.at)
	at := instantOf(d)
	if time.Duration(at)*time.Millisecond > d {
		at--
	}
	return at
}

func instantOf(d time.Duration) lease.Instant { return lease.Instant(d / time.Millisecond) }

// until is how long it is until an instant.
func (c *clock) until(t lease.Instant) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.untilLocked(t)
}

func (c *clock) untilLocked(t lease.Instant) time.Duration {
	elapsed := c.readLocked()
	if t > instantOf(1<<63-1) {
		return 1<<63 - 1 - elapsed
	}
	return time.Duration(t)*time.Millisecond - elapsed
}
