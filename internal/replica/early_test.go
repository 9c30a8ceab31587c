package replica

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// notPrimary makes member 1 the leader of a new term before it has applied any entry of that term.
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

// TestNotYetPrimaryKnowsNoCaches checks that a leader does not track caches before it has applied
// an entry of its own term (T6). Until then, the leader ignores messages about caches. Commands
// wait for the next leader and for acknowledgments from the caches.
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

// TestLagsBeforePrimary checks that a newly elected leader, even before it is primary, reports no
// lag for members that have not responded yet.
func TestLagsBeforePrimary(t *testing.T) {
	c := caching(t)
	c.notPrimary()
	if got := c.members[1].r.Lags(); len(got) > 0 {
		t.Errorf("lagging: %v", got)
	}
}

// TestReadyWriteOutlivesLeader checks that if a leader is deposed just before a write leaves the
// gate, the next leader executes the write. The cache has already acknowledged the invalidation.
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

// TestFillOfADeposedLeader checks that if a leader is deposed before it confirms a fill, the reader
// does not cache the result that it gets through the next leader, which has no record of the fill
// (C1).
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

// TestCacheOfADelayedLease checks that writes wait for the cache of a lease with a lock delay only
// until the lease expires. The delay protects the keys; the cache is no longer in use.
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

// TestWriteOfAnEarlierTerm checks that a write in the log of a deposed leader is answered when that
// member is re-elected and applies it. At that time, the member is not yet primary and does not
// track caches.
func TestWriteOfAnEarlierTerm(t *testing.T) {
	c := caching(t)
	c.hold(c.members[1], 1, 60_000)
	c.isolate()
	held, free := c.put(c.members[1], "c1", 0), c.put(c.members[1], "x", 0)
	c.reelected()
	c.want("write of a cached key", held, "revision")
	c.want("write of a key without holds", free, "revision")
}
