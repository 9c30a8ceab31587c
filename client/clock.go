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
	mu      sync.Mutex // guards what follows
	last    time.Time
	elapsed time.Duration
}

func newClock() *clock { return &clock{last: time.Now()} }

// read returns what has passed.
func (c *clock) read() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.elapsed += step(now.Sub(c.last), now.Round(0).Sub(c.last.Round(0)))
	c.last = now
	return c.elapsed
}

// step is by how much the clock goes forward if the monotonic clock and the wall clock
// went forward by so much.
func step(monotonic, wall time.Duration) time.Duration { return max(monotonic, wall, 0) }

// now returns the reading as package holder has it.
func (c *clock) now() lease.Instant { return instantOf(c.read()) }

func instantOf(d time.Duration) lease.Instant { return lease.Instant(d / time.Millisecond) }

// until is how long it is until an instant.
func (c *clock) until(t lease.Instant) time.Duration {
	elapsed := c.read()
	if t > instantOf(1<<63-1) {
		return 1<<63 - 1 - elapsed
	}
	return time.Duration(t)*time.Millisecond - elapsed
}
