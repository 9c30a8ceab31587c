package server

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"leasehold.dev/internal/host"
	"leasehold.dev/internal/shell"
	"leasehold.dev/lease"
)

// clock reads the instants by which leases are timed: CLOCK_BOOTTIME, which
// runs on while the machine is suspended, as the holders' time does. Go's
// own monotonic clock stands still then, and wall time jumps (DESIGN 2.2).
//
// A reading is a system call, so the core reads once a step.
type clock struct {
	boot      func() lease.Instant // reads CLOCK_BOOTTIME
	start     atomic.Int64         // boot time at which the instants begin, as the shell says
	reference time.Time
}

func newClock(on *host.Host) *clock {
	c := &clock{boot: bootMillis, reference: time.Now()}
	if on != nil {
		c.boot = func() lease.Instant { return lease.Instant(on.Boot().Milliseconds()) }
	}
	return c
}

// read returns what the clocks show.
func (c *clock) read() shell.Reading {
	return shell.Reading{
		Boot: c.boot(), Mono: lease.Instant(time.Since(c.reference).Milliseconds()),
	}
}

// now returns the present instant. Any goroutine may ask.
func (c *clock) now() lease.Instant { return c.boot() - lease.Instant(c.start.Load()) }

func bootMillis() lease.Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("server: read CLOCK_BOOTTIME: " + err.Error())
	}
	return lease.Instant(ts.Nano() / int64(time.Millisecond))
}
