package server

import (
	"fmt"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/host"
	"leasehold.dev/internal/shell"
	"leasehold.dev/lease"
)

// clock reads the instants that leases are timed by. Like the holders' clocks, it keeps running
// while the machine is suspended. Go's monotonic clock would stop, and wall time can jump (rule 2).
//
// A reading costs a system call, so the core reads the clock only once per step.
type clock struct {
	boot  func() lease.Instant // reads the machine's clock, see [host.Host.Clock]
	mono  func() lease.Instant // reads Go's monotonic clock
	start atomic.Int64         // boot time of instant 0, as set by the shell
}

// maxReadingSkew is the maximum time between two readings that are compared.
const maxReadingSkew lease.Instant = 10

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

// read reads both clocks at about the same time. If the goroutine is descheduled in between, the
// clocks seem to diverge, so it retries. Even if that happens every time, the result is safe:
// leases get their full time again.
func (c *clock) read() (r shell.Reading) {
	for range 10 {
		before := c.mono()
		r = shell.Reading{Boot: c.boot(), Mono: c.mono()}
		if r.Mono-before < maxReadingSkew {
			break
		}
	}
	return r
}

// now returns the current instant. It can be called from any goroutine.
func (c *clock) now() lease.Instant { return c.boot() - lease.Instant(c.start.Load()) }
