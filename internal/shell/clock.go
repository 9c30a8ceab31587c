package shell

import "leasehold.dev/lease"

// jumpLimit is how far boot time and the monotonic clock may differ from one reading to the next.
// If they differ more, the machine counts as having been suspended.
const jumpLimit = 250 * lease.Instant(1)

// Reading is a reading of a machine's clocks, in milliseconds. Leases are timed by boot time,
// which goes on while the machine is suspended, like the time of the holders. The monotonic clock
// stops then (rule 2).
type Reading struct{ Boot, Mono lease.Instant }

// clock turns readings into instants.
type clock struct {
	start  Reading       // the instants begin at its boot time
	behind lease.Instant // by how much the monotonic clock was behind at the last reading
	last   lease.Instant // the last reading
}

// read returns the present instant, and whether the clocks have drifted apart since the
// last reading by more than scheduling explains: the machine slept.
//
// Boot time never goes back on a healthy machine. If it does, as after the move of a virtual
// machine, it is unknown how much time has passed. The instants then continue from the last one,
// and the jump is reported whatever its size.
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
