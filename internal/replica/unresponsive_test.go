package replica

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// askAround probes the processes that a member asks about, and records the unresponsive ones.
// Paused processes and processes behind a cut link do not respond.
func (c *cluster) askAround(p *peer, out *Output) {
	for _, id := range out.Ask {
		other := c.members[id]
		if other == nil || other == p {
			c.t.Errorf("member %d probed member %d", p.id, id)
			continue
		}
		there, back := link2{p.id, id}, link2{id, p.id}
		if !other.down && !other.hung && !c.cut[there] && !c.cut[back] {
			p.r.Answered(id, 1)
		}
	}
	for _, s := range out.Silent {
		c.note("%d: %d is silent, at %d", p.id, s.Member, c.now)
	}
}

// TestNoPreVoteWaits checks that without PreVote only Raft's election timeout detects an
// unresponsive leader. Otherwise a follower that is briefly cut off would depose a leader that the
// other members still hear from.
func TestNoPreVoteWaits(t *testing.T) {
	for _, without := range []bool{false, true} {
		c := newCluster(t, 1, 2, 3)
		cfg := c.members[1].r.cfg
		cfg.Silence, cfg.NoPreVote = silence.Config{Heartbeat: 100, Most: 1000}, without
		r, err := New(cfg)
		c.check(err)
		r.Answered(2, 3)
		if watches := len(r.Silences()) == 1; watches == without {
			t.Errorf("without PreVote %v: watches others %v", without, watches)
		}
	}
}

// TestFormerLeaderAsks checks that a follower drops its leader when that leader campaigns in a
// later term, but not when an old campaign message arrives late.
func TestFormerLeaderAsks(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	for _, id := range c.ids() {
		p := c.members[id]
		c.silence = silence.Config{Heartbeat: 100, Most: 1000}
		c.start(p)
	}
	c.check(c.members[1].r.Campaign())
	c.run()
	p := c.members[2]
	if p.r.leader != 1 {
		t.Fatalf("member 2 has leader %d", p.r.leader)
	}
	for term := p.r.term; term <= p.r.term+1; term++ {
		_ = p.r.Step(&Message{Version: 1, From: 1, To: 2, Raft: &raftpb.Message{
			Type: raftpb.MsgPreVote.Enum(), From: new(uint64(1)), To: new(uint64(2)),
			Term: new(term), Index: new(uint64(100)), LogTerm: new(p.r.term),
		}})
		c.carry(p, p.r.Take())
		if knows := p.r.leader == 1; knows != (term == p.r.term) {
			t.Errorf("campaign message for term %d in term %d: leader kept: %v",
				term, p.r.term, knows)
		}
	}
}

func TestRemovedMemberIsForgotten(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.silence = silence.Config{Heartbeat: 100, Most: 1000}
	for _, id := range c.ids() {
		c.start(c.members[id])
	}
	p := c.members[1]
	c.check(p.r.Campaign())
	c.pass(1500)
	known := func() (ids []uint64) {
		for _, s := range p.r.Silences() {
			ids = append(ids, s.Member)
		}
		return ids
	}
	if got := known(); !slices.Equal(got, []uint64{2, 3}) {
		t.Fatalf("known members: %v", got)
	}
	c.want("remove", c.command(p, &fsm.RemoveMember{ID: 3}), "revision")
	c.pass(500)
	if got := known(); !slices.Equal(got, []uint64{2}) {
		t.Errorf("known members: %v", got)
	}
}

// TestFollowerNeverLosesQuorum checks that a follower never reports a lost quorum, even if it loses
// its leader.
func TestFollowerNeverLosesQuorum(t *testing.T) {
	c := newCluster(t, 1, 2)
	r := c.members[2].r
	r.silence = silence.New(silence.Config{Heartbeat: 1, Most: 1})
	r.silence.Follow([]uint64{1}, 0)
	for now := range lease.Instant(3) {
		r.silence.Look(1000 * now)
	}
	if !r.silence.Lost(1) {
		t.Fatal("the leader is not lost")
	}
	if r.lostQuorum() {
		t.Error("a follower is deserted")
	}
}
