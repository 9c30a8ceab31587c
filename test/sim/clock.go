package sim

import (
	"leasehold.dev/internal/shell"
	"leasehold.dev/lease"
)

// clock is one machine's: it runs at a rate of its own from an offset of its own,
// through pauses, suspends and restarts.
type clock struct {
	rate   float64 // local microseconds a true one
	offset Time
	asleep Time // for which the machine has slept
}

// local returns the reading at an instant of true time, in microseconds.
func (c *clock) local(t Time) Time { return c.offset + Time(c.rate*float64(t)) }

// world returns the last instant of true time at which the clock shows no more
// than local.
func (c *clock) world(local Time) Time { return Time(float64(local-c.offset) / c.rate) }

// instant returns the reading as a lease engine counts.
func (c *clock) instant(t Time) lease.Instant { return lease.Instant(c.local(t) / Millisecond) }

// reading returns what the machine's clocks show. One of them stands still while it sleeps.
func (c *clock) reading(t Time) shell.Reading {
	return shell.Reading{
		Boot: c.instant(t), Mono: lease.Instant((c.local(t) - c.asleep) / Millisecond),
	}
}

// after returns when the clock will show the instant or a later one.
func (c *clock) after(at lease.Instant) Time {
	t := c.world(Time(at) * Millisecond)
	for c.instant(t) < at {
		t++
	}
	return t
}
