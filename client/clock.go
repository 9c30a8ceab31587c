package client

import (
	"sync"
	"time"

	"leasehold.dev/lease"
)

// clock measures the time since it was created, including time during which the machine was
// suspended. Go's monotonic clock stops during a suspend. The wall clock continues, but it can be
// set. So from one reading to the next, this clock advances as far as whichever of the two advanced
// further. If the clock advances too fast, validity ends early, which is safe. It is never slower
// than the monotonic clock.
type clock struct {
	source func() time.Time

	mu      sync.Mutex // guards the following fields
	last    time.Time
	elapsed time.Duration
}

// newClock returns a clock that reads source. If source is nil, it reads time.Now.
func newClock(source func() time.Time) *clock {
	if source == nil {
		source = time.Now
	}
	return &clock{source: source, last: source()}
}

// read returns the elapsed time.
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

// step returns how far the clock advances, given how far the monotonic clock and the wall clock
// have advanced.
func step(monotonic, wall time.Duration) time.Duration { return max(monotonic, wall, 0) }

// window is a time span that can be checked without taking the clock's mutex.
type window struct {
	base time.Time
	wall int64 // wall time of base, in nanoseconds
	left time.Duration
}

// within reports whether a time is in the window.
func (w *window) within(now time.Time) bool {
	return step(now.Sub(w.base), time.Duration(now.UnixNano()-w.wall)) < w.left
}

// window returns the window from now until the given instant.
func (c *clock) window(until lease.Instant) *window {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.untilLocked(until)
	return &window{base: c.last, wall: c.last.UnixNano(), left: left}
}

// now returns the current reading as an instant of package holder.
func (c *clock) now() lease.Instant { return instantOf(c.read()) }

// moment is an instant together with its clock. The clocks of different clients have different
// origins.
type moment struct {
	clock *clock
	at    lease.Instant
}

func (c *clock) moment() moment { return moment{c, c.now()} }

// instant converts a moment to an instant of this clock, rounded down. The result is negative if
// the moment was before the clock's origin. The zero moment is the clock's origin.
func (c *clock) instant(m moment) lease.Instant {
	if m.clock == c || m.clock == nil {
		return m.at
	}
	now := c.read() // the clock is read first, so that a delay makes the result earlier
	d := now + m.clock.until(m.at)
	at := instantOf(d)
	if time.Duration(at)*time.Millisecond > d {
		at--
	}
	return at
}

func instantOf(d time.Duration) lease.Instant { return lease.Instant(d / time.Millisecond) }

// until returns the time remaining until an instant.
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
