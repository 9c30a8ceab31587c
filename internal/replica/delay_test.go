package replica

import (
	"testing"

	"leasehold.dev/internal/fsm"
)

// crowd is a member whose callers wait for their answers before they ask again.
type crowd struct {
	*member
	held int // times that commands were kept waiting for others
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{member: lead(t)}
	c.r.cfg.CommitDelay = true
	return c
}

// ask proposes n commands at once, and says whether they wait for others.
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

// sync makes durable what was proposed, and returns how many were answered.
func (c *crowd) sync() int {
	c.t.Helper()
	before := len(c.proposals)
	c.persist()
	c.take()
	return len(c.proposals) - before
}

// TestDelayTurns: who is told by an answer to another, as the next holder of a lock is,
// was not there to be counted; the entry before tells that there are two.
func TestDelayTurns(t *testing.T) {
	c := newCrowd(t)
	c.ask(1)                     // a holder unlocks
	c.sync()                     // and is told; so is the next
	c.ask(1)                     // it comes back to the line, which begins a sync,
	c.ask(1)                     // just before the next unlocks
	if c.sync(); c.r.Delayed() { // so that this waits: in vain, since nobody else was told
		c.r.EndDelay()
		c.take()
	}
	c.sync()
	for i := range 10 {
		if !c.ask(1) || c.ask(1) {
			t.Fatalf("hand-over %d: the two commands do not share an entry", i)
		}
		c.sync()
	}
}

// TestDelayAlone: a caller that is alone never waits.
func TestDelayAlone(t *testing.T) {
	c := newCrowd(t)
	for range 100 {
		c.ask(1)
		c.sync()
	}
	if c.held > 0 {
		t.Errorf("waited %d times", c.held)
	}
}

// TestDelayEnds: callers that do not come are waited for once, and no longer than the
// shell allows; if they keep staying away, more and more seldom.
func TestDelayEnds(t *testing.T) {
	c := newCrowd(t)
	for round := range 200 {
		c.ask(8)
		if c.r.Delayed() {
			c.r.EndDelay()
			if c.take(); c.r.Delayed() {
				t.Fatal("waited for longer than it was allowed to")
			}
		}
		if n := c.sync(); n != 8 {
			t.Fatalf("round %d: %d answered", round, n)
		}
		if c.ask(1) { // seven stay away
			c.r.EndDelay()
			c.take()
		}
		c.sync()
	}
	if c.held == 0 || c.held > 20 {
		t.Errorf("waited %d times of 400", c.held)
	}
}

// TestDelayStale: no caller is expected back long after it was answered.
func TestDelayStale(t *testing.T) {
	c := newCrowd(t)
	c.ask(8)
	c.sync()
	c.now += 6 // milliseconds
	c.r.Advance(c.now)
	if c.ask(1) {
		t.Error("a command waits for callers who were answered long ago")
	}
}
