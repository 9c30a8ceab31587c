package shell

import "leasehold.dev/lease"

// jumpLimit is how much the difference between boot time and the monotonic clock may change between
// two readings. A larger change means that the machine was suspended.
const jumpLimit = 250 * lease.Instant(1)

// Reading is a reading of a machine's clocks, in milliseconds. Leases are timed by boot time,
// which, like the holders' time, continues while the machine is suspended. The monotonic clock
// stops then (rule 2).
type Reading struct{ Boot, Mono lease.Instant }

// clock converts readings to instants.
type clock struct {
	start  Reading       // instant 0 is its boot time
	behind lease.Instant // how far the monotonic clock was behind at the last reading
	last   lease.Instant // the last reading
}

// read returns the current instant, and whether the clocks have drifted apart since the last
// reading by more than scheduling explains, which means that the machine was suspended.
//
// Boot time never goes back on a healthy machine. If it does, for example after a virtual machine
// has been moved, it is unknown how much time has passed. The instants then continue from the last
// one, and a jump of any size is reported.
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
