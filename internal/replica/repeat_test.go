package replica

import (
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestRepeat checks that a repeated command returns the outcome of the first one.
func TestRepeat(t *testing.T) {
	m := lead(t)
	grant := func(id lease.ID, request string) fsm.Command {
		terms := lease.Terms{ID: id, TTL: 60_000, RequestID: request}
		return (&fsm.Grant{Terms: terms}).Repeatable()
	}
	if r := m.do(grant(1, "first")); r.Err != nil {
		t.Fatal(r.Err)
	}
	ask := func(p *Repeat) *Repeat {
		m.r.Read(&Read{Repeat: p})
		m.settle()
		return p
	}
	if p := ask(&Repeat{Command: grant(1, "first")}); !p.Done || p.Result.Err != nil {
		t.Errorf("the same command: %+v", p)
	}
	if p := ask(&Repeat{Command: grant(2, "second")}); p.Done {
		t.Errorf("another: %+v", p)
	}
}
