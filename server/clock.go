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
	boot  func() lease.Instant // reads the clock of the machine, see [host.Host.Clock]
	mono  func() lease.Instant // reads Go's monotonic clock
	start atomic.Int64         // boot time at which the instants begin, as the shell says
}

// together is how soon after one another two clocks are read that are compared.
const together lease.Instant = 10

func newClock(on *host.Host) (*clock, error) {
	boot, err := on.Clock()
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	reference := time.Now()
	return &clock{
		boot: func() lease.Instant { return lease.Instant(boot().Milliseconds()) },
		mono: func() lease.Instant { return lease.Instant(time.Since(reference).Milliseconds()) },
	}, nil
}

// read returns what the clocks show at one moment. If the goroutine had to wait for a processor
// between the two, they would seem to part, so it reads them again. A machine on which that happens
// each time is taken as it is: that its leases get their full time again is safe.
func (c *clock) read() (r shell.Reading) {
	for range 10 {
		before := c.mono()
		r = shell.Reading{Boot: c.boot(), Mono: c.mono()}
		if r.Mono-before < together {
			break
		}
	}
	return r
}

// now returns the present instant. Any goroutine may ask.
func (c *clock) now() lease.Instant { return c.boot() - lease.Instant(c.start.Load()) }
