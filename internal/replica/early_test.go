package replica

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// notPrimary makes member 1 lead in a new term before it applies an entry of that term.
func (c *cluster) notPrimary() {
	c.t.Helper()
	p := c.members[1]
	c.check(p.r.Transfer(2))
	c.run()
	c.lose = func(m *Message) bool { return m.From == 1 && m.Raft.GetType() == raftpb.MsgApp }
	c.check(c.members[2].r.Transfer(1))
	c.run()
	if !p.r.leading || p.r.primary {
		c.t.Fatalf("leading %v, primary %v", p.r.leading, p.r.primary)
	}
}

// T6: before a leader has applied an entry of its own term, it does not track caches. It ignores
// messages about them, and commands wait for the next leader and for acknowledgements from the
// caches.
func TestNotYetPrimaryKnowsNoCaches(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[1], 1, 60_000)
	k.mustFill("c1")
	c.notPrimary()
	p := c.members[1]
	p.r.Refresh()
	k.confirm()
	q := &Read{
		Fill:  &Fill{ID: k.id, Token: k.token, Ranges: []keyrange.Range{{Key: "c2"}}},
		Owner: c.ask(p, "fill"),
	}
	p.r.Read(q)
	w := c.put(p, "c1", 0)
	c.want("write before the leader is primary", w, "")
	c.isolate()
	c.depose()
	c.lose = nil
	c.reelect()
	if got := c.asks["1: fill"]; got != "cached in term 0" {
		t.Errorf("read: %q", got)
	}
	c.want("write of a cached key", w, "")
	k.invalidations()
	k.ask("c1")
	k.ack("c1")
	c.want("write", w, "revision")
}

// A newly elected leader reports no lag for members that have not answered yet, even before it is
// primary.
func TestLagsBeforePrimary(t *testing.T) {
	c := caching(t)
	c.notPrimary()
	if got := c.members[1].r.Lags(); len(got) > 0 {
		t.Errorf("lagging: %v", got)
	}
}

// A write that was about to leave the gate when its leader was deposed is done by the next leader.
// Its cache had acknowledged the invalidation.
func TestReadyWriteOutlivesLeader(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[1], 1, 60_000)
	k.mustFill("c1")
	w := c.put(c.members[1], "c1", 0)
	c.isolate()
	_, last := k.invalidations()
	k.p.r.AckCache(AckCache{
		ID: k.id, Token: k.token, Term: last.Term, Seq: last.Seq, Open: k.term,
	})
	if !k.p.r.lead.gate.hasReady() {
		t.Fatal("the write is not ready")
	}
	c.reelected()
	c.want("write of a cached key in the new term", w, "")
	k.invalidations()
	k.ask("c1")
	k.ack("c1")
	c.want("write", w, "revision")
}

// C1: if a leader is deposed before it confirms a fill, the reader must not cache what it reads
// through the next leader, which does not know of the fill.
func TestFillOfADeposedLeader(t *testing.T) {
	c := caching(t)
	p := c.members[1]
	k := c.hold(p, 1, 60_000)
	k.mustFill("c2")
	c.isolate()
	q := &Read{
		Fill:  &Fill{ID: k.id, Token: k.token, Ranges: []keyrange.Range{{Key: "c1"}}},
		Owner: c.ask(p, "fill"),
	}
	p.r.Read(q)
	c.run()
	if q.Fill.Term == 0 || c.asks["1: fill"] != "" {
		t.Fatalf("recorded in term %d, answered %q", q.Fill.Term, c.asks["1: fill"])
	}
	c.depose()
	c.leaderless(2, 3)
	clear(c.cut)
	c.check(c.members[2].r.Campaign())
	c.run()
	if got := c.asks["1: fill"]; got != "cached in term 0" {
		t.Errorf("read: %q", got)
	}
}

// A cache whose lease has a lock delay is waited for only until the lease expires. The delay is for
// the keys; no one uses the cache any more.
func TestCacheOfADelayedLease(t *testing.T) {
	c := caching(t)
	grant := c.command(c.members[2], &fsm.Grant{
		Terms: lease.Terms{ID: 1, TTL: 2000, LockDelay: 60_000},
		Holds: []keyrange.Range{{Key: "c", End: "d"}},
	})
	c.want("grant", grant, "revision")
	info, _ := c.members[2].r.lessor.Lookup(1)
	k := &cache{c: c, p: c.members[2], id: 1, token: info.Token}
	k.open()
	k.mustFill("c1")
	w := c.put(c.members[1], "c1", 0)
	c.want("write of a cached key", w, "")
	c.pass(2500)
	if info, _ := c.members[1].r.lessor.Lookup(1); !info.Delayed {
		t.Fatalf("no lock delay is running: %+v", info)
	}
	c.want("write", w, "revision")
	c.want("next write", c.put(c.members[3], "c2", 0), "revision")
	if n := c.members[1].r.CacheStats().Caches; n != 0 {
		t.Errorf("%d caches", n)
	}
}

// A write in the log of a deposed leader is answered when that member is re-elected and applies it,
// before it is primary and tracks caches.
func TestWriteOfAnEarlierTerm(t *testing.T) {
	c := caching(t)
	c.hold(c.members[1], 1, 60_000)
	c.isolate()
	held, free := c.put(c.members[1], "c1", 0), c.put(c.members[1], "x", 0)
	c.reelected()
	c.want("write of a cached key", held, "revision")
	c.want("write of a key without holds", free, "revision")
}
