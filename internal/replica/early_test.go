package replica

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// notPrimary has member 1 lead in a new term without applying an entry of it.
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

// T6: a leader that has not applied an entry of its own term keeps no account of caches. What is
// said to it about them does no harm, and the commands that came meanwhile are done by the next
// leader, when the caches have dropped what they have.
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
	c.want("a write before the leader is primary", w, "")
	c.isolate()
	c.depose()
	c.lose = nil
	c.reelect()
	if got := c.asks["1: fill"]; got != "cached in term 0" {
		t.Errorf("the read: %q", got)
	}
	c.want("a write of what a cache may have", w, "")
	k.told()
	k.ask("c1")
	k.ack("c1")
	c.want("the write", w, "revision")
}

// A leader that is elected anew says of no member that has not answered yet how far it is behind,
// also before it is primary.
func TestLagsBeforePrimary(t *testing.T) {
	c := caching(t)
	c.notPrimary()
	if got := c.members[1].r.Lags(); len(got) > 0 {
		t.Errorf("behind: %v", got)
	}
}

// A write that was about to go on when its leader was deposed is done by the next leader: its cache
// had acknowledged it, and it was not in the queue yet.
func TestReadyWriteOutlivesLeader(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[1], 1, 60_000)
	k.mustFill("c1")
	w := c.put(c.members[1], "c1", 0)
	c.isolate()
	_, last := k.told()
	k.p.r.AckCache(AckCache{
		ID: k.id, Token: k.token, Term: last.Term, Seq: last.Seq, Open: k.term,
	})
	if !k.p.r.lead.gate.hasReady() {
		t.Fatal("the write is not ready")
	}
	c.again()
	c.want("a write of what a cache may have in the new term", w, "")
	k.told()
	k.ask("c1")
	k.ack("c1")
	c.want("the write", w, "revision")
}

// C1: what a leader noted for a cache is worth nothing if it is deposed before it knows that it
// led: the reader may not cache what it reads by way of the next leader, which does not know of it.
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
		t.Fatalf("noted in term %d, answered %q", q.Fill.Term, c.asks["1: fill"])
	}
	c.depose()
	c.leaderless(2, 3)
	clear(c.cut)
	c.check(c.members[2].r.Campaign())
	c.run()
	if got := c.asks["1: fill"]; got != "cached in term 0" {
		t.Errorf("the read: %q", got)
	}
}

// A cache whose lease has a lock delay is waited for until the lease expires: the delay is for the
// keys, and nobody uses the cache any more.
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
	c.want("a write of what the cache has", w, "")
	c.pass(2500)
	if info, _ := c.members[1].r.lessor.Lookup(1); !info.Delayed {
		t.Fatalf("no lock delay runs: %+v", info)
	}
	c.want("the write", w, "revision")
	c.want("the next", c.put(c.members[3], "c2", 0), "revision")
	if n := c.members[1].r.CacheStats().Caches; n != 0 {
		t.Errorf("%d caches", n)
	}
}

// A write that its leader had in the log when it was deposed is answered when the same member leads
// again and applies it, before it is primary and keeps account of caches.
func TestWriteOfAnEarlierTerm(t *testing.T) {
	c := caching(t)
	c.hold(c.members[1], 1, 60_000)
	c.isolate()
	held, free := c.put(c.members[1], "c1", 0), c.put(c.members[1], "x", 0)
	c.again()
	c.want("the write of what a cache may have", held, "revision")
	c.want("that of what nobody holds", free, "revision")
}
