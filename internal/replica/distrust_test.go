package replica

import (
	"errors"
	"fmt"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// TestWriterWaitsUntilLeaseEndsAnew: a write that came while the clock was not trusted waits for a
// dead cache until the lease of that cache may have ended, by the time that the lease got anew, and
// no longer. Method: the end of the lease itself has to wait for another cache, so nothing else
// lets the write go on; and the cache is known to be slow before the clock is trusted again.
func TestWriterWaitsUntilLeaseEndsAnew(t *testing.T) {
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
	c.want("before the lease of the cache ends", w, "")
	c.pass(400)
	c.want("after that", w, "revision")
	if _, ok := c.members[1].r.lessor.Lookup(1); !ok {
		t.Error("the lease has ended, though a cache may have its key")
	}
}

// TestExpiryInTheGateIsTakenBack: an expiry that was decided before the clock jumped takes no
// effect, though it waits only for others to leave the gate (T10). It is decided anew when the
// lease has had its full time again. Those that had left it have their outcome before.
func TestExpiryInTheGateIsTakenBack(t *testing.T) {
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
		t.Fatalf("%d leases wait in the gate", n)
	}
	m.now += 3600_000
	m.r.Advance(m.now)
	m.r.Refresh()
	m.settle()
	if n := m.m.Lessor().Len() - 1; m.r.Status().Refreshing || n != leases-inTheLog {
		t.Fatalf("%d are left, status %+v", n, m.r.Status())
	}
	if n := m.renew(leases); n.Err != nil || n.TTL != 2000 {
		t.Errorf("the renewal: %+v", n)
	}
	m.pass(1900)
	if n := m.m.Lessor().Len() - 1; n != leases-inTheLog {
		t.Errorf("%d are left: some expired by what was decided before the jump", n)
	}
	m.pass(200)
	if n := m.m.Lessor().Len() - 1; n != 0 {
		t.Errorf("%d never expire", n)
	}
}

// TestSingleExpiryInTheLog: an expiry of a lease by itself that is in the log when the clock jumps
// has its outcome before leases get their time anew. The renewal that waits for it is told (T5).
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
		t.Fatal("no lease expires by itself")
	}
	m.now += 3600_000
	m.r.Advance(m.now)
	m.r.Refresh()
	m.r.Renew(Renewal{ID: 1})
	m.take()
	if !m.r.Status().Refreshing || len(m.renewals[1]) > 0 {
		t.Fatalf("status %+v, answered %+v", m.r.Status(), m.renewals[1])
	}
	m.settle()
	if n := m.renewals[1]; len(n) != 1 || !errors.Is(n[0].Err, lease.ErrNotFound) {
		t.Errorf("the renewal: %+v", n)
	}
	if m.alive(1) || !m.alive(2) || m.r.Status().Refreshing {
		t.Errorf("alive %v, %v, status %+v", m.alive(1), m.alive(2), m.r.Status())
	}
}

// TestOrphanOfAnEarlierTerm: a member that is elected again gives an orphan its full time anew: its
// clock may have jumped while nobody asked it. What the orphan has is not late before then.
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
	c.want("before its time is over", w, "")
	c.pass(300)
	c.want("after that", w, "revision")
}
