package replica

import (
	"errors"
	"testing"

	"leasehold.dev/internal/fsm"
)

// A leader that was just elected has not heard of the others for long, but its
// connections to them may stand for hours: then a member can be added at once.
func TestStableConnections(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	leader := c.members[1]
	c.ticks(leader, 10) // it is not new any more
	add := &fsm.AddMember{Member: fsm.Member{ID: 9, PeerURLs: []string{"nine"}, Learner: true}}
	p := &Proposal{Command: add, Owner: "1:add early"}
	leader.r.Propose(p)
	c.run()
	if !errors.Is(p.Err, ErrUnhealthy) {
		t.Fatalf("added with nobody connected for long: %v", p.Err)
	}
	for _, id := range []uint64{2, 3} {
		leader.r.Connected(id, 0)
	}
	p = &Proposal{Command: add, Owner: "1:add"}
	leader.r.Propose(p)
	c.run()
	if p.Err != nil || p.Result.Err != nil {
		t.Errorf("refused with connections that stand: %v, %v", p.Err, p.Result.Err)
	}
	leader.r.Unreachable(2)
	if leader.r.links.stable(2) {
		t.Error("a connection that broke counts on")
	}
}

// A voter whose process has just ended is no part of the majority that must stay
// when another is removed, although it was heard a moment ago.
func TestRemoveAfterDeath(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	leader := c.members[1]
	c.ticks(leader, 10) // it is not new any more
	c.kill(c.members[3])
	leader.r.Gone(3)
	p := &Proposal{Command: &fsm.RemoveMember{ID: 2}, Owner: "1:remove 2"}
	leader.r.Propose(p)
	c.run()
	if !errors.Is(p.Err, ErrUnhealthy) {
		t.Errorf("removed the second of two that live: %v", p.Err)
	}
	p = &Proposal{Command: &fsm.RemoveMember{ID: 3}, Owner: "1:remove 3"}
	leader.r.Propose(p)
	c.run()
	if p.Err != nil || p.Result.Err != nil {
		t.Errorf("did not remove the dead one: %v, %v", p.Err, p.Result.Err)
	}
}

// A voter that a new leader has not heard yet is not known to be down: whether it can be
// removed is decided when the leader has had the time to hear it.
func TestRemoveUnheard(t *testing.T) {
	for _, silent := range []bool{false, true} {
		c := newCluster(t, 1, 2, 3)
		c.members[3].down = true
		c.check(c.members[1].r.Campaign())
		c.run()
		leader := c.members[1]
		p := &Proposal{Command: &fsm.RemoveMember{ID: 3}, Owner: "1:remove 3"}
		leader.r.Propose(p)
		c.run()
		if len(leader.r.lead.changes.waiting) != 1 {
			t.Fatalf("decided before the member could be heard: %v", p.Err)
		}
		c.members[3].down = silent
		c.ticks(leader, 20)
		if removed := p.Err == nil && p.Result.Err == nil; removed != silent ||
			!removed && !errors.Is(p.Err, ErrUnhealthy) || len(leader.r.lead.changes.waiting) != 0 {
			t.Errorf("silent %v: %v, %v", silent, p.Err, p.Result.Err)
		}
	}
}

// ticks lets a member tick, and the others answer.
func (c *cluster) ticks(p *peer, n int) {
	c.t.Helper()
	for range n {
		p.r.Tick()
		c.run()
	}
}
