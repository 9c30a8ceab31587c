package server

import (
	"fmt"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/host"
	"leasehold.dev/internal/shell"
	"leasehold.dev/lease"
)

// clock reads the instants by which leases are timed, by a clock that runs on while the
// machine is suspended, as the holders' time does. Go's own monotonic clock stands still then,
// and wall time jumps (rule 2).
//
// A reading is a system call, so the core reads once a step.
type clock struct {
	boot      func() lease.Instant // reads the clock of the machine, see [host.Host.Clock]
	start     atomic.Int64         // boot time at which the instants begin, as the shell says
	reference time.Time
}

func newClock(on *host.Host) (*clock, error) {
	boot, err := on.Clock()
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return &clock{reference: time.Now(), boot: func() lease.Instant {
		return lease.Instant(boot().Milliseconds())
	}}, nil
}

// read returns what the clocks show.
func (c *clock) read() shell.Reading {
	return shell.Reading{
		Boot: c.boot(), Mono: lease.Instant(time.Since(c.reference).Milliseconds()),
	}
}

// now returns the present instant. Any goroutine may ask.
func (c *clock) now() lease.Instant { return c.boot() - lease.Instant(c.start.Load()) }
