package replica

import (
	"math/rand/v2"
	"testing"

	"leasehold.dev/lease"
)

// syncTime is how long the log takes to sync an entry, and maxDelay is the maximum commit delay.
// Both are in milliseconds.
const (
	syncTime = 4
	maxDelay = 3
)

// callers simulates callers that send a command, wait for its answer, and repeat. The log syncs one
// entry at a time.
type callers struct {
	think    func() lease.Instant // time from an answer to the next command
	delays   bool                 // enables the commit delay
	d        commitDelay
	now      lease.Instant
	asks     map[lease.Instant]int // number of callers about to send a command, by time
	waiting  int                   // pending commands
	syncing  int                   // commands in the entry being synced
	done     lease.Instant         // when the sync ends
	held     lease.Instant         // start of the current delay; 0 for none
	commands int                   // total number of commands
	entries  int
	delayed  int // number of delayed entries
}

// step simulates one millisecond.
func (c *callers) step() {
	c.now++
	c.waiting += c.asks[c.now]
	delete(c.asks, c.now)
	if c.syncing > 0 && c.now == c.done {
		for range c.syncing {
			c.d.answered(c.now)
			c.asks[c.now+max(1, c.think())]++
		}
		c.syncing = 0
	}
	if c.syncing > 0 {
		return
	}
	c.d.free(c.waiting)
	if c.held != 0 && c.now-c.held >= maxDelay {
		c.d.end()
	}
	switch {
	case c.waiting == 0:
		return
	case c.delays && c.d.holds(c.waiting, c.now):
		if c.held == 0 {
			c.held = c.now
			c.delayed++
		}
		return
	}
	c.d.proposed(c.waiting)
	c.commands += c.waiting
	c.entries++
	c.syncing, c.waiting, c.done, c.held = c.waiting, 0, c.now+syncTime, 0
}

// played returns the state after a simulation with n callers.
func played(n int, delays bool, least, most lease.Instant) *callers {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	c := &callers{
		delays: delays, asks: make(map[lease.Instant]int),
		think: func() lease.Instant { return least + lease.Instant(r.Int64N(int64(most-least)+1)) },
	}
	for range n {
		c.asks[1+lease.Instant(r.Int64N(syncTime))]++
	}
	for range 20_000 {
		c.step()
	}
	return c
}

// TestDelayFastCallers checks that if callers respond immediately, nearly all of them share each
// entry. Without the delay they would form two groups and complete fewer commands.
func TestDelayFastCallers(t *testing.T) {
	for _, n := range []int{2, 8, 64} {
		with, without := played(n, true, 1, 2), played(n, false, 1, 2)
		if n*with.entries > with.commands*10/9 {
			t.Errorf("%d callers sent %d commands in %d entries", n, with.commands, with.entries)
		}
		if 4*with.commands < 5*without.commands {
			t.Errorf("%d callers sent %d commands, and %d without a delay", n, with.commands,
				without.commands)
		}
	}
}

// TestDelaySlowCallers checks that entries are rarely delayed for slow callers, and never for a
// single caller.
func TestDelaySlowCallers(t *testing.T) {
	for _, n := range []int{1, 2, 8} {
		c := played(n, true, 40, 400)
		if c.delayed*10 > c.entries || n == 1 && c.delayed > 0 {
			t.Errorf("%d callers: %d of %d entries were delayed", n, c.delayed, c.entries)
		}
	}
	if c := played(1, true, 1, 2); c.delayed > 0 || c.entries == 0 {
		t.Errorf("a single caller was delayed at %d of %d entries", c.delayed, c.entries)
	}
}
