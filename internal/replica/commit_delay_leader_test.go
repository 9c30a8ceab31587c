package replica

import (
	"testing"

	"leasehold.dev/internal/fsm"
)

// crowd is a member whose callers wait for an answer before they send their next command.
type crowd struct {
	*member
	held int // number of delays
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{member: lead(t)}
	c.r.cfg.CommitDelay = true
	return c
}

// ask proposes n commands in one step and reports whether they are delayed.
func (c *crowd) ask(n int) bool {
	c.t.Helper()
	for range n {
		c.r.Propose(&Proposal{Command: &fsm.Grant{}})
	}
	c.take()
	held := c.r.Delayed()
	if held {
		c.held++
	}
	return held
}

// sync makes the proposals durable and returns the number of answers.
func (c *crowd) sync() int {
	c.t.Helper()
	before := len(c.proposals)
	c.persist()
	c.take()
	return len(c.proposals) - before
}

// TestDelayTurns covers callers that are notified by another caller's answer, like the next holder
// of a lock. The second caller is not counted, because it sends nothing before it is notified. The
// previous entry shows that there are two callers.
func TestDelayTurns(t *testing.T) {
	c := newCrowd(t)
	c.ask(1)                     // a holder unlocks
	c.sync()                     // it is answered, and the next holder is notified
	c.ask(1)                     // the first holder rejoins the queue, which starts a sync
	c.ask(1)                     // the next holder unlocks just afterwards
	if c.sync(); c.r.Delayed() { // the delay is useless: no other caller was notified
		c.r.EndDelay()
		c.take()
	}
	c.sync()
	for i := range 10 {
		if !c.ask(1) || c.ask(1) {
			t.Fatalf("hand-over %d: the commands do not share an entry", i)
		}
		c.sync()
	}
}

// TestDelayEnds checks that if expected callers do not return, commands wait for them less and less
// often, and never longer than the shell allows.
func TestDelayEnds(t *testing.T) {
	c := newCrowd(t)
	for round := range 200 {
		c.ask(8)
		if c.r.Delayed() {
			c.r.EndDelay()
			if c.take(); c.r.Delayed() {
				t.Fatal("the delay exceeded the limit")
			}
		}
		if n := c.sync(); n != 8 {
			t.Fatalf("round %d: %d answered", round, n)
		}
		if c.ask(1) { // seven callers do not return
			c.r.EndDelay()
			c.take()
		}
		c.sync()
	}
	if c.held == 0 || c.held > 20 {
		t.Errorf("waited in %d of 400 rounds", c.held)
	}
}

// TestDelayStale checks that commands do not wait for callers that were answered long ago.
func TestDelayStale(t *testing.T) {
	c := newCrowd(t)
	c.ask(8)
	c.sync()
	c.now += 6 // milliseconds
	c.r.Advance(c.now)
	if c.ask(1) {
		t.Error("a command waits for callers that were answered long ago")
	}
}
