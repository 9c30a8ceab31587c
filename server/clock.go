package server

import (
	"time"

	"golang.org/x/sys/unix"

	"leasehold.dev/lease"
)

// jumpLimit is how far boot time and Go's monotonic clock may differ over
// one step of the loop before the machine is taken to have been suspended.
const jumpLimit = 250 * lease.Instant(1)

// clock reads the instants by which leases are timed: CLOCK_BOOTTIME, which
// runs on while the machine is suspended, as the holders' time does. Go's
// own monotonic clock stands still then, and wall time jumps (DESIGN 2.2).
//
// A reading is a system call, so the core reads once a step.
type clock struct {
	start     lease.Instant // boot time at which the instants begin
	reference time.Time
	behind    lease.Instant // by how much the monotonic clock was behind at the last reading
}

func newClock() *clock {
	return &clock{start: bootMillis(), reference: time.Now()}
}

// read returns the present instant, and whether the clocks have drifted apart
// since the last reading by more than scheduling explains: the machine slept.
func (c *clock) read() (now lease.Instant, jumped bool) {
	now = bootMillis() - c.start
	behind := now - lease.Instant(time.Since(c.reference).Milliseconds())
	jumped = behind-c.behind > jumpLimit || c.behind-behind > jumpLimit
	c.behind = behind
	return now, jumped
}

// now returns the present instant. Any goroutine may ask.
func (c *clock) now() lease.Instant { return bootMillis() - c.start }

func bootMillis() lease.Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("server: read CLOCK_BOOTTIME: " + err.Error())
	}
	return lease.Instant(ts.Nano() / int64(time.Millisecond))
}
