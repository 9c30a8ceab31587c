package delay

import (
	"math/rand/v2"
	"testing"

	"leasehold.dev/lease"
)

// syncTime and patience are, in milliseconds, how long the log takes for an entry, and for how long
// commands are delayed at most.
const (
	syncTime = 4
	patience = 3
)

// callers ask, wait for their answers and ask again, while one entry at a time is synced.
type callers struct {
	think    func() lease.Instant // from an answer to the next question
	delays   bool                 // whether there is a commit delay
	d        Delay
	now      lease.Instant
	asks     map[lease.Instant]int // who will ask, and when
	waiting  int                   // commands
	syncing  int                   // commands of the entry that is synced
	done     lease.Instant         // when that is
	held     lease.Instant         // since when commands are delayed; 0: they are not
	commands int                   // in all entries
	entries  int
	delayed  int // entries
}

// step is one millisecond.
func (c *callers) step() {
	c.now++
	c.waiting += c.asks[c.now]
	delete(c.asks, c.now)
	if c.syncing > 0 && c.now == c.done {
		for range c.syncing {
			c.d.Answered(c.now)
			c.asks[c.now+max(1, c.think())]++
		}
		c.syncing = 0
	}
	if c.syncing > 0 {
		return
	}
	c.d.Free(c.waiting)
	if c.held != 0 && c.now-c.held >= patience {
		c.d.End()
	}
	switch {
	case c.waiting == 0:
		return
	case c.delays && c.d.Holds(c.waiting, c.now):
		if c.held == 0 {
			c.held = c.now
			c.delayed++
		}
		return
	}
	c.d.Proposed(c.waiting)
	c.commands += c.waiting
	c.entries++
	c.syncing, c.waiting, c.done, c.held = c.waiting, 0, c.now+syncTime, 0
}

// played returns so many callers after many steps.
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

// Goal: callers that ask again at once share nearly all entries, where they would form two groups
// otherwise, and so get more done. Method: they are played with the delay and without it.
func TestCallersAtOnce(t *testing.T) {
	for _, n := range []int{2, 8, 64} {
		with, without := played(n, true, 1, 2), played(n, false, 1, 2)
		if n*with.entries > with.commands*10/9 {
			t.Errorf("%d callers have %d commands in %d entries", n, with.commands, with.entries)
		}
		if 4*with.commands < 5*without.commands {
			t.Errorf("%d callers have %d commands, and without a delay %d", n, with.commands,
				without.commands)
		}
	}
}

// Goal: callers that do not come back soon are hardly ever waited for, and one that is alone never
// is. Method: callers that think for longer than the delay could last.
func TestCallersThatThink(t *testing.T) {
	for _, n := range []int{1, 2, 8} {
		c := played(n, true, 40, 400)
		if c.delayed*10 > c.entries || n == 1 && c.delayed > 0 {
			t.Errorf("%d callers: %d of %d entries were delayed", n, c.delayed, c.entries)
		}
	}
	if c := played(1, true, 1, 2); c.delayed > 0 || c.entries == 0 {
		t.Errorf("a caller that is alone was delayed at %d of %d entries", c.delayed, c.entries)
	}
}
