package replica

import (
	"errors"
	"fmt"
	"slices"
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

// TestExpiryBeforeGateIsTakenBack: an expiry that was decided before the clock jumped takes no
// effect, though it waits before the gate behind commands for which a step had no time (T10). It
// is decided anew when the lease has had its full time again. A checkpoint that waits there, too,
// has its outcome before.
func TestExpiryBeforeGateIsTakenBack(t *testing.T) {
	const caches, puts, id = 300, 2000, 1000
	m := lead(t)
	m.grant(id, 2000)
	m.grant(id+1, 5000) // silent when the other one ends
	m.do(&fsm.Put{Key: "c/k", Lease: id})
	for n := range lease.ID(caches) {
		m.do(&fsm.Grant{
			Terms: lease.Terms{ID: n + 1, TTL: 60_000}, Holds: []keyrange.Range{{Key: "c/", End: "c0"}},
		})
	}
	m.now += 2500 // at once, so that the silence of the lease is not in the log before
	m.r.Advance(m.now)
	for i := range puts {
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprintf("c/%d", i)}})
	}
	m.take()
	gate := &m.r.lead.gate
	var own []string
	for _, p := range gate.early {
		if p.internal != nil {
			own = append(own, fmt.Sprintf("%T", p.Command))
		}
	}
	if !slices.Equal(own, []string{"*fsm.Expire", "*fsm.Checkpoint"}) {
		t.Fatalf("of the leader's commands %q wait before the gate", own)
	}
	m.now += 3600_000
	m.r.Advance(m.now)
	m.r.Refresh()
	m.settle()
	if m.r.Status().Refreshing || !m.alive(id) {
		t.Fatalf("alive %v, status %+v", m.alive(id), m.r.Status())
	}
	if n := m.renew(id); n.Err != nil || n.TTL != 2000 {
		t.Errorf("the renewal: %+v", n)
	}
	m.pass(1900)
	if !m.alive(id) {
		t.Error("expired by what was decided before the jump")
	}
	m.pass(200)
	if m.alive(id) {
		t.Error("never expires")
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
