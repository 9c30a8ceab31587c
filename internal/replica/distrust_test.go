package replica

import (
	"errors"
	"fmt"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// TestWriterWaitsForRefreshedLease checks that a write that arrives while the clock is not trusted
// waits for a dead cache until the cache's lease could have ended, counted from its refresh.
// Another cache delays the expiry itself, so nothing else can let the write proceed.
func TestWriterWaitsForRefreshedLease(t *testing.T) {
	c := caching(t)
	dead, other := c.hold(c.members[2], 1, 6000), c.hold(c.members[3], 2, 60_000)
	c.want("attach", c.put(c.members[1], "c2", 1), "revision")
	dead.mustFill("c1")
	other.mustFill("c2")
	c.jumpWhileExpiring(func() {})
	w := c.put(c.members[3], "c1", 0)
	c.pass(1100)
	c.wantSlow("while the clock is not trusted", "owner 1 for 1 ")
	c.unstick()
	c.pass(5800)
	c.want("before the cache's lease ends", w, "")
	c.pass(400)
	c.want("afterwards", w, "revision")
	if _, ok := c.members[1].r.lessor.Lookup(1); !ok {
		t.Error("the lease has ended although a cache may have its key")
	}
}

// TestExpiryAtGateIsWithdrawn checks that an expiry that was decided before a clock jump and is
// still waiting at the gate is withdrawn (T10). It is decided again after the lease's full TTL.
// Expiries that have already left the gate complete first.
func TestExpiryAtGateIsWithdrawn(t *testing.T) {
	const leases, inTheLog = 300, 256
	m := lead(t)
	m.r.cfg.MaxExpire = leases
	for n := range lease.ID(leases) {
		m.grant(n+1, 2000)
		m.do(&fsm.Put{Key: fmt.Sprint("c/", n), Lease: n + 1})
	}
	m.do(&fsm.Grant{
		Terms: lease.Terms{ID: leases + 1, TTL: 60_000}, Holds: []keyrange.Range{{Key: "c/", End: "c0"}},
	})
	m.now += 2500
	m.r.Advance(m.now)
	m.take()
	if n := len(m.r.lead.gate.singles.unproposed()); n != leases-inTheLog {
		t.Fatalf("%d leases wait at the gate", n)
	}
	m.now += 3600_000
	m.r.Advance(m.now)
	m.r.Refresh()
	m.settle()
	if n := m.m.Lessor().Len() - 1; m.r.Status().Refreshing || n != leases-inTheLog {
		t.Fatalf("%d leases left, status %+v", n, m.r.Status())
	}
	if n := m.renew(leases); n.Err != nil || n.TTL != 2000 {
		t.Errorf("renewal: %+v", n)
	}
	m.pass(1900)
	if n := m.m.Lessor().Len() - 1; n != leases-inTheLog {
		t.Errorf("%d leases left: some expired by a decision from before the jump", n)
	}
	m.pass(200)
	if n := m.m.Lessor().Len() - 1; n != 0 {
		t.Errorf("%d leases never expire", n)
	}
}

// TestSingleExpiryInTheLog checks that if a single lease's expiry is in the log when the clock
// jumps, it completes before leases are refreshed. The renewal waiting for it is answered (T5).
func TestSingleExpiryInTheLog(t *testing.T) {
	m := lead(t)
	m.grant(1, 2000)
	m.do(&fsm.Put{Key: "c/k", Lease: 1})
	m.do(&fsm.Grant{
		Terms: lease.Terms{ID: 2, TTL: 60_000}, Holds: []keyrange.Range{{Key: "c/", End: "c0"}},
	})
	m.now += 2500
	m.r.Advance(m.now)
	m.take()
	if !m.r.lead.gate.singles.any() || len(m.appends) == 0 {
		t.Fatal("no expiry has an entry of its own")
	}
	m.now += 3600_000
	m.r.Advance(m.now)
	m.r.Refresh()
	m.r.Renew(Renewal{ID: 1})
	m.take()
	if !m.r.Status().Refreshing || len(m.renewals[1]) > 0 {
		t.Fatalf("status %+v, answers %+v", m.r.Status(), m.renewals[1])
	}
	m.settle()
	if n := m.renewals[1]; len(n) != 1 || !errors.Is(n[0].Err, lease.ErrNotFound) {
		t.Errorf("renewal: %+v", n)
	}
	if m.alive(1) || !m.alive(2) || m.r.Status().Refreshing {
		t.Errorf("alive %v, %v, status %+v", m.alive(1), m.alive(2), m.r.Status())
	}
}

// TestOrphanOfAnEarlierTerm checks that a re-elected leader restarts an orphan's full time, because
// its clock could have jumped in the meantime. The orphan's holds do not become late any earlier.
func TestOrphanOfAnEarlierTerm(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 3000)
	k.mustFill("c1")
	c.want("revoked", c.command(c.members[1], &fsm.Revoke{ID: 1}), "revision")
	c.isolate()
	c.depose()
	c.now += 10_000
	c.reelect()
	w := c.put(c.members[1], "c1", 0)
	c.pass(800)
	c.wantSlow("in the new term", "")
	c.pass(400)
	c.wantSlow("later", "owner 1 for 1 ")
	c.pass(1700)
	c.want("before its time ends", w, "")
	c.pass(300)
	c.want("afterwards", w, "revision")
}
