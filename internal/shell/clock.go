package shell

import "leasehold.dev/lease"

// jumpLimit is how much the difference between boot time and the monotonic clock can change between
// two readings. A larger change means that the machine was suspended.
const jumpLimit = 250 * lease.Instant(1)

// Reading is a reading of a machine's clocks, in milliseconds. Leases are timed by boot time, which
// keeps running while the machine is suspended, as the holders' clocks do. The monotonic clock
// stops during a suspension (rule 2).
type Reading struct{ Boot, Mono lease.Instant }

// clock converts readings to instants.
type clock struct {
	start  Reading       // its boot time is instant 0
	behind lease.Instant // how far the monotonic clock lagged behind boot time at the last reading
	last   lease.Instant // the last reading
}

// read returns the current instant. It also reports whether the machine was suspended. It infers
// this if the two clocks have diverged since the last reading by more than scheduling can explain.
//
// On a healthy machine, boot time never goes back. If it does, for example after a virtual machine
// has been migrated, there is no telling how much time has passed. In that case the instants
// continue from the last one, and read returns jumped=true, however small the step back was.
func (c *clock) read(r Reading) (now lease.Instant, jumped bool) {
	now = r.Boot - c.start.Boot
	back := c.last - now
	if back > 0 {
		c.start.Boot -= back
		now = c.last
	}
	c.last = now
	behind := now - (r.Mono - c.start.Mono)
	jumped = back > 0 || behind-c.behind > jumpLimit || c.behind-behind > jumpLimit
	c.behind = behind
	return now, jumped
}
