package replica

import (
	"errors"
	"testing"

	"leasehold.dev/lease"
)

// TestRefresh checks that after a clock jump every lease gets its full TTL again, and none expires
// by the new reading (T10).
func TestRefresh(t *testing.T) {
	m := lead(t)
	m.grant(1, 1000)
	m.now += 3600_000
	m.r.Advance(m.now)
	m.r.Refresh()
	m.settle()
	if !m.alive(1) {
		t.Fatal("expired by a clock that jumped")
	}
	m.pass(900)
	if !m.alive(1) {
		t.Error("did not get its full TTL")
	}
	m.pass(200)
	if m.alive(1) {
		t.Error("still exists")
	}
}

// TestRefreshWhileExpiring makes the clock jump while an expiry is in the log (L1, T10). A renewal
// of the expiring lease waits for the outcome. After that, all other leases get their full TTL.
// Until then, the new reading is not used for any decision.
func TestRefreshWhileExpiring(t *testing.T) {
	m := lead(t)
	m.grant(1, 1000)
	m.grant(2, 9000)
	m.now += 1500
	m.r.Advance(m.now)
	m.take() // the expiry has been proposed and is being synced
	m.now += 3600_000
	m.r.Advance(m.now)
	m.r.Refresh()
	m.r.Renew(Renewal{ID: 1})
	m.r.Renew(Renewal{ID: 2})
	m.take()
	if len(m.renewals[1]) != 0 {
		t.Fatalf("a renewal of an expiring lease was answered: %+v", m.renewals[1])
	}
	if n := m.renewals[2]; len(n) != 1 || n[0].Err != nil {
		t.Fatalf("another lease waits for it: %+v", n)
	}
	if !m.r.Status().Refreshing {
		t.Error("refreshed while an expiry is in flight")
	}
	m.settle()
	if m.r.Status().Refreshing {
		t.Error("not refreshed although nothing is in flight")
	}
	if n := m.renewals[1]; len(n) != 1 || !errors.Is(n[0].Err, lease.ErrNotFound) {
		t.Errorf("outcome %+v, want not found", n)
	}
	m.pass(8900)
	if info, ok := m.m.Lessor().Lookup(2); !ok {
		t.Error("another lease did not get its full TTL")
	} else if info.Remaining > 5450 {
		t.Errorf("checkpointed by the clock that jumped: %+v", info)
	}
}

// TestRefreshWhileCheckpointing covers a pause while a checkpoint is in the log. A renewal is then
// acknowledged only once that checkpoint is cleared, because the next leader would otherwise count
// from it (L1).
func TestRefreshWhileCheckpointing(t *testing.T) {
	m := lead(t)
	m.grant(1, 10_000)
	m.now += 4500
	m.r.Advance(m.now)
	m.take() // the checkpoint has been proposed and is being synced
	if !m.r.lead.expiry.checkpointing {
		t.Fatal("no checkpoint in flight")
	}
	m.now += 2000
	m.r.Advance(m.now)
	m.r.Refresh()
	m.r.Renew(Renewal{ID: 1})
	m.take()
	early := len(m.renewals[1]) != 0
	m.settle()
	n := m.renewals[1]
	if len(n) != 1 || n[0].Err != nil {
		t.Fatalf("outcome %+v", n)
	}
	if info, _ := m.m.Lessor().Lookup(1); early || info.Remaining != 0 {
		t.Errorf("acknowledged before the checkpoint was durable: %v; the next leader counts from %d ms",
			early, info.Remaining)
	}
}
