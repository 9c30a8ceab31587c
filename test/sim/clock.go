package sim

import (
	"leasehold.dev/internal/shell"
	"leasehold.dev/lease"
)

// clock is a machine's clock. It has its own rate and offset, and keeps running through pauses,
// suspends and restarts.
type clock struct {
	rate   float64 // local microseconds per true microsecond
	offset Time
	asleep Time // total time that the machine was suspended
}

// local returns the clock's reading at an instant of true time.
func (c *clock) local(t Time) Time { return c.offset + Time(c.rate*float64(t)) }

// world returns the instant of true time, rounded down, at which the clock shows local.
func (c *clock) world(local Time) Time { return Time(float64(local-c.offset) / c.rate) }

// instant returns the reading in the units of the lease engine.
func (c *clock) instant(t Time) lease.Instant { return lease.Instant(c.local(t) / Millisecond) }

// reading returns the readings of the machine's two clocks. One of them stops while the machine is
// suspended.
func (c *clock) reading(t Time) shell.Reading {
	return shell.Reading{
		Boot: c.instant(t), Mono: lease.Instant((c.local(t) - c.asleep) / Millisecond),
	}
}

// after returns the first instant of true time at which the clock shows at or later.
func (c *clock) after(at lease.Instant) Time {
	t := c.world(Time(at) * Millisecond)
	for c.instant(t) < at {
		t++
	}
	return t
}
