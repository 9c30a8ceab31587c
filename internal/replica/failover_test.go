package replica

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
)

// A learner asks for nobody's place: it keeps the leader until it hears of another.
func TestLearnerKeepsLeader(t *testing.T) {
	c := caching(t)
	c.pass(1000)
	learner := fsm.Member{ID: 4, PeerURLs: []string{url(4)}, Learner: true, Incarnation: 4}
	c.want("a learner", c.command(c.members[1], &fsm.AddMember{Member: learner}), "revision")
	c.join(4)
	c.pass(500)
	p := c.members[4]
	if p.r.Gone(1); p.r.leader != 1 || p.r.failover.at != 0 {
		t.Errorf("the leader is %d, and a campaign is at %d", p.r.leader, p.r.failover.at)
	}
}

// A leader that was just elected hands over though no voter has acknowledged any of its log.
func TestYieldAtOnce(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.lose = func(m *Message) bool { return m.Raft.GetType() == raftpb.MsgApp }
	l := c.members[1].r
	c.check(l.Campaign())
	c.run()
	if !l.leading || !l.Yield() || !l.raft.transferring() {
		t.Errorf("leads %v, hands over %v", l.leading, l.raft.transferring())
	}
}

// Goal: a leader hands over to a voter that it hears, or says that there is none; a second time it
// lets the first one go on. Method: of two voters the other is not heard, and a learner is.
func TestYieldToVoters(t *testing.T) {
	c := newCluster(t, 1, 2)
	l := c.members[1].r
	c.check(l.Campaign())
	c.pass(1000)
	learner := fsm.Member{ID: 4, PeerURLs: []string{url(4)}, Learner: true, Incarnation: 4}
	c.want("a learner", c.command(c.members[1], &fsm.AddMember{Member: learner}), "revision")
	c.join(4)
	c.pass(500)
	l.Gone(2)
	if l.Yield() || l.raft.transferring() {
		t.Error("it hands over to a member that is not heard, or has no vote")
	}
	if err := l.Transfer(4); !errors.Is(err, ErrBadTransferee) {
		t.Errorf("handed over to a learner: %v", err)
	}
	c.cut[link2{1, 2}] = true
	c.check(l.Transfer(2))
	c.check(l.Transfer(1))
	if !l.raft.transferring() || !l.Yield() || !l.raft.transferring() {
		t.Error("it does not go on to hand over")
	}
}
