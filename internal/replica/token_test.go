package replica

import (
	"errors"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestRenewByToken checks that a renewal with a token renews only that incarnation of the lease
// (T28). Every renewal is answered, even during a lock delay.
func TestRenewByToken(t *testing.T) {
	m := lead(t)
	renew := func(token lease.Token) error {
		t.Helper()
		n := len(m.renewals[1])
		m.r.Renew(Renewal{ID: 1, Token: token})
		m.settle()
		if len(m.renewals[1]) != n+1 {
			t.Fatalf("renewal by token %d: %d outcomes", token, len(m.renewals[1])-n)
		}
		return m.renewals[1][n].Err
	}
	token := func() lease.Token {
		info, _ := m.m.Lessor().Lookup(1)
		return info.Token
	}
	m.do(&fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 1000, LockDelay: 1000}})
	first := token()
	m.do(&fsm.HandOver{ID: 1, Token: first, Owner: "next"})
	for _, c := range []struct {
		token lease.Token
		want  error
	}{
		{0, nil}, {token(), nil}, {first, lease.ErrNotFound}, {token() + 1, lease.ErrNotFound},
	} {
		if err := renew(c.token); !errors.Is(err, c.want) {
			t.Errorf("renewal by token %d: %v, want %v", c.token, err, c.want)
		}
	}
	// A renewal in flight during a hand-over fails if it carries a token. Without a token, it
	// renews the lease, which has existed throughout.
	for _, c := range []struct {
		token lease.Token
		want  error
	}{{token(), lease.ErrNotFound}, {0, nil}} {
		n := len(m.renewals[1])
		m.committed(&fsm.HandOver{ID: 1, Token: token(), Owner: "third"})
		m.r.Renew(Renewal{ID: 1, Token: c.token})
		m.settle()
		if late := m.renewals[1][n:]; len(late) != 1 || !errors.Is(late[0].Err, c.want) {
			t.Errorf("renewal in flight with token %d: %+v", c.token, late)
		}
	}
	m.pass(1500)
	if info, ok := m.m.Lessor().Lookup(1); !ok || !info.Delayed {
		t.Fatalf("no lock delay: %+v", info)
	}
	if err := renew(0); !errors.Is(err, lease.ErrNotFound) {
		t.Errorf("renewal during the lock delay: %v", err)
	}
	m.pass(1500)
	if m.alive(1) {
		t.Error("the lock delay did not end")
	}
}

// TestRenewalDuringTTLChange checks that a renewal promises the new TTL if its lease's TTL changes
// while the renewal is in flight. A later primary knows only the new TTL (L1).
func TestRenewalDuringTTLChange(t *testing.T) {
	m := lead(t)
	m.grant(1, 9000)
	for _, ttl := range []lease.TTL{1000, 5000} {
		info, _ := m.m.Lessor().Lookup(1)
		m.committed(&fsm.ChangeTTL{ID: 1, Token: info.Token, TTL: ttl})
		n := len(m.renewals[1])
		m.r.Renew(Renewal{ID: 1})
		m.settle()
		if late := m.renewals[1][n:]; len(late) != 1 || late[0].TTL != ttl || late[0].Err != nil {
			t.Errorf("promised %+v, lease has %d ms", late, ttl)
		}
	}
}

// committed commits a command that will be applied in the next step.
func (m *member) committed(c fsm.Command) {
	m.t.Helper()
	m.r.Propose(&Proposal{Command: c})
	m.take()
	batch := m.appends
	m.appends = nil
	for _, a := range batch {
		if err := m.log.Append(a.GetEntries()); err != nil {
			m.t.Fatal(err)
		}
		m.r.Persisted(a)
	}
}

// TestRemainingReportsIndex checks that the remaining time of a lease is reported with the index of
// the state that it came from (T28). Otherwise a caller at another member could mistake an earlier
// incarnation for the current one.
func TestRemainingReportsIndex(t *testing.T) {
	m := lead(t)
	m.grant(1, 9000)
	before := m.m.Index()
	m.do(&fsm.Revoke{ID: 1})
	m.grant(1, 5000)
	for index, leases := range map[uint64][]lease.ID{before: nil, m.m.Index(): {1}} {
		q := &Read{from: 2, round: 1, Leases: leases}
		m.r.lead.remotes.confirmed(q, before, m.m.Index(), left(m.r.lessor, leases))
		if got := m.r.lead.remotes.of(2).answer().Index; got != index {
			t.Errorf("remaining time of leases %v reported with index %d, want %d", leases, got, index)
		}
		m.r.lead.remotes.of(2).reply = nil
	}
}

// TestLeftBeforeInspect checks that a read already has the remaining time of its leases when it
// calls Inspect.
func TestLeftBeforeInspect(t *testing.T) {
	m := lead(t)
	m.grant(1, 9000)
	q := &Read{Leases: []lease.ID{1}}
	q.Inspect = func(*lease.Lessor) {
		if len(q.Left) != 1 || q.Left[0].TTL != 9000 {
			t.Errorf("left: %v", q.Left)
		}
	}
	m.r.Read(q)
	if m.settle(); len(m.reads) != 1 || len(q.Left) != 1 {
		t.Errorf("%d reads, left: %v", len(m.reads), q.Left)
	}
}

// TestRenewBeforeLeaderHasApplied covers a holder that receives its lease from a member that
// applied the grant before the leader did. The leader must not answer "not found" then (T7).
func TestRenewBeforeLeaderHasApplied(t *testing.T) {
	m := lead(t)
	token := m.m.Lessor().LastToken() + 1
	m.r.Propose(&Proposal{Command: &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 9000}}})
	m.take()
	m.persist() // committed; applied in the next step
	m.r.Renew(Renewal{ID: 1, Token: token})
	m.settle()
	if n := m.renewals[1]; len(n) != 1 || n[0].Err != nil || n[0].TTL != 9000 {
		t.Errorf("renewals %+v", n)
	}
	if got := m.token(1); got != token {
		t.Fatalf("the lease has token %d, want %d", got, token)
	}
}
