package replica

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// planning returns the failover of member 5. There are the voters 2, 3, 5 and 6, and the learner 1.
func planning(t *testing.T, now lease.Instant) *failover {
	t.Helper()
	m := fsm.New(fsm.Config{})
	m.Begin(1, 1)
	for _, id := range []uint64{1, 2, 3, 5, 6} {
		m.AddMember(fsm.Member{ID: id, Learner: id == 1})
	}
	f := &failover{m: &local{cfg: Config{ID: 5}, machine: m}}
	f.m.now = now
	return f
}

// TestFailoverPlan: a voter campaigns at once in the place of a dead leader, and a little later for
// each voter before it that could.
func TestFailoverPlan(t *testing.T) {
	for _, c := range []struct {
		now  lease.Instant
		dead uint64
		want lease.Instant
	}{
		{1000, 6, 1000 + 2*stagger},
		{1000, 5, 1000 + 2*stagger},
		{1000, 3, 1000 + stagger},
		{0, 2, 1 + stagger},
	} {
		f := planning(t, c.now)
		if f.begin(c.dead); f.at != c.want {
			t.Errorf("%d dies at %d: the campaign is at %d, want %d", c.dead, c.now, f.at, c.want)
		}
	}
}

// TestFailoverTries: it campaigns again and again, but not without end, and for as long when the
// next leader dies.
func TestFailoverTries(t *testing.T) {
	f := planning(t, 0)
	for range 2 {
		f.begin(3)
		f.m.now = f.at - 1
		if f.due() {
			t.Error("it campaigns too early")
		}
		for n := range campaignTries {
			f.m.now = f.at
			if !f.due() || f.at != f.m.now+2*stagger {
				t.Fatalf("try %d: the next is at %d; it is %d", n, f.at, f.m.now)
			}
		}
		f.m.now = f.at
		if f.due() || f.at != 0 {
			t.Errorf("one more try; the next is at %d", f.at)
		}
		if f.due() {
			t.Error("it campaigns without a plan")
		}
	}
}

// TestFailoverEnds: who knows of a leader, or leads, does not campaign; and while another may win,
// it waits.
func TestFailoverEnds(t *testing.T) {
	was := role{term: 7}
	for name, c := range map[string]struct {
		now    role
		follow lease.Instant // when it campaigns then; 0 for never
		due    bool          // whether it does if it has followed nothing
	}{
		"nothing new":    {was, 2000, true},
		"a later term":   {role{term: 8}, 1000 + 4*stagger, true},
		"a leader":       {role{term: 7, leader: 3}, 0, false},
		"another leader": {role{term: 8, leader: 3}, 0, false},
		"it leads":       {role{term: 8, leader: 5, leading: true}, 0, false},
	} {
		f := planning(t, 1000)
		f.m.role = c.now
		if f.follow(was); f.at != 0 {
			t.Errorf("%s: it plans a campaign at %d though nobody has died", name, f.at)
		}
		f.at = 2000
		if c.follow == 1000+4*stagger {
			f.at = 1000
		}
		if f.follow(was); f.at != c.follow {
			t.Errorf("%s: the campaign is at %d, want %d", name, f.at, c.follow)
		}
		f.at = 1000
		if due := f.due(); due != c.due || !due && f.at != 0 {
			t.Errorf("%s: it campaigns: %v, and then at %d", name, due, f.at)
		}
	}
	f := planning(t, 1000)
	f.m.role, f.at = role{term: 8}, 5000
	if f.follow(was); f.at != 5000 {
		t.Errorf("a later term: the campaign is at %d", f.at)
	}
}

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
