package sim

import "leasehold.dev/lease"

// clock is one machine's: it runs at a rate of its own from an offset of its own,
// through pauses, suspends and restarts.
type clock struct {
	rate   float64 // local microseconds a true one
	offset Time
	lost   Time // that it stood still (plantClockStops)
}

// local returns the reading at an instant of true time, in microseconds.
func (c *clock) local(t Time) Time { return c.offset + Time(c.rate*float64(t-c.lost)) }

// world returns the last instant of true time at which the clock shows no more
// than local.
func (c *clock) world(local Time) Time { return Time(float64(local-c.offset)/c.rate) + c.lost }

// instant returns the reading as a lease engine counts.
func (c *clock) instant(t Time) lease.Instant { return lease.Instant(c.local(t) / Millisecond) }

// after returns when the clock will show the instant or a later one.
func (c *clock) after(at lease.Instant) Time {
	t := c.world(Time(at) * Millisecond)
	for c.instant(t) < at {
		t++
	}
	return t
}
