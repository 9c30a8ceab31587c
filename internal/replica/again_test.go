package replica

import (
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// isolate drops all messages to and from member 1.
func (c *cluster) isolate() {
	for _, id := range []uint64{2, 3} {
		c.cut[link2{1, id}], c.cut[link2{id, 1}] = true, true
	}
}

// leaderless makes members drop their leader.
func (c *cluster) leaderless(ids ...uint64) {
	c.t.Helper()
	for _, id := range ids {
		c.check(c.members[id].r.raft.node.ForgetLeader())
	}
	c.run()
}

// reelected deposes member 1, which was isolated while it led, and re-elects it. Its log entries
// are then proposed in the later term.
func (c *cluster) reelected() {
	c.t.Helper()
	c.depose()
	c.reelect()
}

// depose informs member 1, which is isolated, that it no longer leads.
func (c *cluster) depose() {
	c.t.Helper()
	p := c.members[1]
	term := p.r.term + 1
	c.check(p.r.Step(raftMessage(&raftpb.Message{
		Type: raftpb.MsgAppResp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: &term,
	})))
	c.run()
	if p.r.leading {
		c.t.Fatal("member 1 still leads")
	}
}

// reelect elects member 1 again after it was deposed.
func (c *cluster) reelect() {
	c.t.Helper()
	p := c.members[1]
	term := p.r.term
	c.leaderless(2, 3)
	clear(c.cut)
	c.check(p.r.Campaign())
	c.run()
	if !p.r.primary || p.r.term <= term {
		c.t.Fatalf("member 1 was not re-elected: %+v", p.r.Status())
	}
}

// TestLeadsAgainWhileClearing checks that a renewal waiting for the entry that clears its
// checkpoint is answered once. The entry is applied in a later term of the same leader, where it
// has no effect.
func TestLeadsAgainWhileClearing(t *testing.T) {
	c := caching(t)
	p := c.members[1]
	c.propose(p, &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 5000}}, "grant")
	c.pass(3000)
	c.isolate()
	c.renew(p, 1)
	c.run()
	if p.r.lead.expiry.clearing != 1 || c.asks["1: renew 1"] != "" {
		t.Fatalf("%d clearing entries, %q", p.r.lead.expiry.clearing, c.asks["1: renew 1"])
	}
	c.reelected()
	if got := c.asks["1: renew 1"]; got != "ttl 5000" {
		t.Errorf("renewal: %q", got)
	}
	if n := p.r.lead.expiry.clearing; n != 0 {
		t.Errorf("%d clearing entries counted", n)
	}
}

// TestLeadsAgainWhileExpiring checks that a renewal waiting for the end of its lease is answered
// even if the leader that decided the expiry is deposed.
func TestLeadsAgainWhileExpiring(t *testing.T) {
	c := caching(t)
	p := c.members[1]
	c.propose(p, &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 1000}}, "grant")
	c.pass(1050) // past its last checkpoint, which would delay the expiry
	c.isolate()
	c.pass(300)
	c.renew(p, 1)
	c.run()
	if !p.r.lead.expiry.expiring || len(p.r.lead.parked.of[1]) != 1 {
		t.Fatal("the renewal did not wait for the end of its lease")
	}
	c.reelected()
	if got := c.asks["1: renew 1"]; got != "lease: not found" {
		t.Errorf("renewal: %q", got)
	}
}

// TestElectedWithWaitingRequests checks that client requests waiting at a member for a leader
// proceed when the member itself is elected.
func TestElectedWithWaitingRequests(t *testing.T) {
	c := caching(t)
	p := c.members[2]
	k := c.hold(p, 1, 60_000)
	c.kill(c.members[1])
	c.leaderless(2, 3)
	open := c.ask(p, "open")
	p.r.OpenCache(OpenCache{ID: 1, Token: k.token, Owner: open})
	c.read(p, 0)
	c.renew(p, 1)
	c.propose(p, &fsm.Put{Key: "k"}, "put")
	c.run()
	if len(c.open) != 4 {
		t.Fatalf("without a leader, only %q wait", c.open)
	}
	c.check(p.r.Campaign())
	c.run()
	for name, want := range map[string]string{
		open: "open in term", "2: read": "ok", "2: renew 1": "ttl 60000", "2: put": "revision",
	} {
		if got := c.asks[name]; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestVersionWaitsForTransfer checks that a version change that arrives during a leadership
// transfer is appended when the transfer fails. So are the commands after it.
func TestVersionWaitsForTransfer(t *testing.T) {
	c := caching(t)
	p := c.members[1]
	c.cut[link2{1, 2}], c.cut[link2{2, 1}] = true, true
	c.check(p.r.Transfer(2))
	c.propose(p, &fsm.SetVersion{Version: 1, Hold: true}, "hold")
	c.propose(p, &fsm.Put{Key: "k"}, "put")
	c.run()
	if len(c.open) != 2 {
		t.Fatalf("during the transfer, only %q wait", c.open)
	}
	c.pass(1100)
	if !p.r.primary || len(c.open) > 0 {
		t.Errorf("not answered: %q, %+v", c.open, p.r.Status())
	}
}

// TestVersionIsRaisedAfterARefusal checks that the leader retries raising the cluster version if
// the first attempt failed because a member supported only an older version.
func TestVersionIsRaisedAfterARefusal(t *testing.T) {
	one, two := version.Range{Oldest: 1, Newest: 1}, version.Range{Oldest: 1, Newest: 2}
	m := leadWith(t, two, two)
	speaks := func(r version.Range) {
		c := &fsm.SetMember{Member: fsm.Member{ID: self, Versions: r}}
		m.r.Propose(&Proposal{Command: c})
		m.r.Tick()
		m.settle()
	}
	speaks(one)
	if v := m.m.Version(); v.Number != 1 || m.r.lead.raising {
		t.Fatalf("version %+v, raise still pending: %v", v, m.r.lead.raising)
	}
	speaks(two)
	m.r.Tick()
	m.settle()
	if v := m.m.Version(); v.Number != 2 {
		t.Errorf("version %+v", v)
	}
}

// TestQueueReusesMemory checks that the memory of an entry's commands is reused once that entry is
// applied, but not earlier.
func TestQueueReusesMemory(t *testing.T) {
	q := newQueue(t)
	q.maxBatch = 2 // one command per entry
	put := func() *Proposal { return &Proposal{Command: &fsm.Put{Key: "k"}} }
	first, second, third := put(), put(), put()
	q.mustAdd(t, first, second, third)
	next := func() (of []*Proposal) {
		_, of = q.next()
		q.remove(len(of))
		return of
	}
	applied := next()
	q.spare.release(applied)
	log := [][]*Proposal{next(), next()}
	q.mustAdd(t, put(), put(), put())
	if log[0][0] != second || log[1][0] != third {
		t.Error("the commands of an unapplied entry were overwritten")
	}
}

// TestLeadsAgainWhileWritesWait checks that a write waiting for a cache when its leader is deposed
// waits again when the same member is re-elected. The gate starts from scratch in each term.
func TestLeadsAgainWhileWritesWait(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[1], 1, 60_000)
	k.mustFill("c1")
	w := c.put(c.members[1], "c1", 0)
	c.isolate()
	c.reelected()
	c.want("write", w, "")
	k.invalidations()
	k.ask("c1")
	k.ack("c1")
	c.want("write", w, "revision")
	c.want("next write", c.put(c.members[1], "c2", 0), "revision")
}

// TestFollowersForgetHolds checks that a follower does not keep a list of leases with new holds.
func TestFollowersForgetHolds(t *testing.T) {
	c := caching(t)
	c.hold(c.members[2], 1, 60_000)
	for _, id := range c.ids() {
		if list := c.members[id].r.machine.TakeHolds(); len(list) > 0 {
			t.Errorf("member %d has %+v", id, list)
		}
	}
}
