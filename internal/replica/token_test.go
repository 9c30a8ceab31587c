package replica

import (
	"errors"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// A renewal that carries a token renews the life of the lease that has it, and
// no other (T28). Every renewal is answered, also that of a lease whose lock
// delay runs.
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
	// One that is on its way while the lease changes hands comes too late.
	n := len(m.renewals[1])
	p := &Proposal{Command: &fsm.HandOver{ID: 1, Token: token(), Owner: "third"}}
	m.r.Propose(p)
	m.take()
	batch := m.appends
	m.appends = nil
	for _, a := range batch {
		if err := m.log.Append(a.GetEntries()); err != nil {
			t.Fatal(err)
		}
		m.r.Persisted(a) // committed, and applied in the next step, with the renewal
	}
	m.r.Renew(Renewal{ID: 1})
	m.settle()
	if late := m.renewals[1][n:]; len(late) != 1 || !errors.Is(late[0].Err, lease.ErrNotFound) {
		t.Errorf("a renewal on its way: %+v", late)
	}
	m.pass(1500)
	if info, ok := m.m.Lessor().Lookup(1); !ok || !info.Delayed {
		t.Fatalf("no delay: %+v", info)
	}
	if err := renew(0); !errors.Is(err, lease.ErrNotFound) {
		t.Errorf("renewal during the lock delay: %v", err)
	}
	m.pass(1500)
	if m.alive(1) {
		t.Error("the delay does not end")
	}
}
