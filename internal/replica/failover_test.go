package replica

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestFailoverPlan checks that when the leader dies, the first candidate campaigns immediately and
// the remaining voters follow at short intervals.
func TestFailoverPlan(t *testing.T) {
	members := []fsm.Member{{ID: 1, Learner: true}, {ID: 2}, {ID: 3}, {ID: 5}, {ID: 6}}
	for _, c := range []struct {
		now  lease.Instant
		dead uint64
		want lease.Instant // when member 5 campaigns
	}{
		{1000, 6, 1000 + 2*stagger},
		{1000, 5, 1000 + 2*stagger},
		{1000, 3, 1000 + stagger},
		{0, 2, 1 + stagger},
	} {
		var f failover
		if f.begin(c.now, place(members, 5, c.dead)); f.at != c.want {
			t.Errorf("member %d died at %d: campaign at %d, want %d", c.dead, c.now, f.at, c.want)
		}
	}
}

// TestFailoverTries checks that a member retries its campaign a limited number of times, and that
// the limit is reset when the next leader dies.
func TestFailoverTries(t *testing.T) {
	var f failover
	for range 2 {
		f.begin(f.at, 1)
		if f.due(f.at-1, 0) {
			t.Error("campaigned too early")
		}
		for n := range campaignTries {
			now := f.at
			if !f.due(now, 0) || f.at != now+2*stagger {
				t.Fatalf("attempt %d: next at %d; now is %d", n, f.at, now)
			}
		}
		now := f.at
		if f.due(now, 0) || f.at != 0 {
			t.Errorf("an extra attempt; next at %d", f.at)
		}
		if f.due(now, 0) {
			t.Error("campaigned without a plan")
		}
	}
}

// TestFailoverEnds checks that a member does not campaign if it leads or has a leader. It waits
// while another member could still win.
func TestFailoverEnds(t *testing.T) {
	was := role{term: 7}
	for name, c := range map[string]struct {
		now    role
		follow lease.Instant // when it campaigns if it is a follower; 0 for never
		due    bool          // whether it campaigns if it has no leader
	}{
		"nothing new":    {was, 2000, true},
		"a later term":   {role{term: 8}, 1000 + 4*stagger, true},
		"a leader":       {role{term: 7, leader: 3}, 0, false},
		"another leader": {role{term: 8, leader: 3}, 0, false},
		"it leads":       {role{term: 8, leader: 5, leading: true}, 0, false},
	} {
		var f failover
		if f.follow(was, c.now, 1000); f.at != 0 {
			t.Errorf("%s: campaign planned at %d although no leader has died", name, f.at)
		}
		f.at = 2000
		if c.follow == 1000+4*stagger {
			f.at = 1000
		}
		if f.follow(was, c.now, 1000); f.at != c.follow {
			t.Errorf("%s: campaign at %d, want %d", name, f.at, c.follow)
		}
		f.at = 1000
		if due := f.due(1000, c.now.leader); due != c.due || !due && f.at != 0 {
			t.Errorf("%s: campaigned: %v, next at %d", name, due, f.at)
		}
	}
	f := failover{at: 5000}
	if f.follow(was, role{term: 8}, 1000); f.at != 5000 {
		t.Errorf("later term: campaign at %d", f.at)
	}
}

// TestLearnerKeepsLeader checks that a learner never campaigns. It keeps its leader until there is
// a new one.
func TestLearnerKeepsLeader(t *testing.T) {
	c := caching(t)
	c.pass(1000)
	learner := fsm.Member{ID: 4, PeerURLs: []string{url(4)}, Learner: true, Incarnation: 4}
	c.want("a learner", c.command(c.members[1], &fsm.AddMember{Member: learner}), "revision")
	c.join(4)
	c.pass(500)
	p := c.members[4]
	if p.r.Gone(1); p.r.leader != 1 || p.r.failover.at != 0 {
		t.Errorf("leader %d, campaign at %d", p.r.leader, p.r.failover.at)
	}
}

// TestYieldAtOnce checks that a newly elected leader can transfer leadership even if no voter has
// acknowledged any of its log.
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

// TestYieldToVoters checks that a leader transfers leadership to a responsive voter, never to a
// learner, and returns an error if there is no such voter. A second request does not interrupt the
// first transfer.
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
		t.Error("it hands over to an unresponsive member or a learner")
	}
	if err := l.Transfer(4); !errors.Is(err, ErrBadTransferee) {
		t.Errorf("handed over to a learner: %v", err)
	}
	c.cut[link2{1, 2}] = true
	c.check(l.Transfer(2))
	c.check(l.Transfer(1))
	if !l.raft.transferring() || !l.Yield() || !l.raft.transferring() {
		t.Error("the first hand-over was interrupted")
	}
}
