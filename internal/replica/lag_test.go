package replica

import (
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
)

// TestLags checks that the lag of a dead member grows, even at a new leader that has never received
// a message from it. A member that keeps up has no lag.
func TestLags(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.pass(3000)
	lead := func(id uint64) *Replica {
		t.Helper()
		if r := c.members[id].r; r.Status().Primary {
			return r
		}
		t.Fatalf("member %d does not lead", id)
		return nil
	}
	elect := func(id uint64) {
		t.Helper()
		for _, p := range c.members {
			if !p.down && p.id != id && p.r.Status().Leading {
				c.check(p.r.Transfer(id))
			}
		}
		c.pass(300)
	}
	elect(1)
	c.kill(c.members[3])
	for range 5 {
		c.propose(c.members[1], &fsm.Put{Key: "k"})
		c.run()
	}
	c.pass(100)
	if got := lead(1).Lags(); !slices.Equal(got, []Lag{{2, 0}, {3, 5}}) {
		t.Errorf("lag at the old leader: %v", got)
	}
	elect(2)
	if got := lead(2).Lags(); !slices.Equal(got, []Lag{{1, 0}}) {
		t.Errorf("lag at the new leader, at first: %v", got)
	}
	c.pass(1500)
	if got := lead(2).Lags(); len(got) != 2 || got[1].Member != 3 || got[1].Entries < 5 {
		t.Errorf("lag at the new leader: %v", got)
	}
	if got := c.members[1].r.Lags(); got != nil {
		t.Errorf("lag at a follower: %v", got)
	}
}

// TestLagsOfUncommitted checks that uncommitted entries do not count as lag.
func TestLagsOfUncommitted(t *testing.T) {
	c := newCluster(t, 1, 2, 3, 4, 5)
	c.check(c.members[1].r.Campaign())
	c.run()
	for _, id := range []uint64{3, 4, 5} {
		c.cut[link2{1, id}] = true
	}
	c.propose(c.members[1], &fsm.Put{Key: "k"}, "put")
	c.run()
	if got := c.members[1].r.Lags(); !slices.Equal(got, []Lag{{2, 0}, {3, 0}, {4, 0}, {5, 0}}) {
		t.Errorf("lagging: %v", got)
	}
}
