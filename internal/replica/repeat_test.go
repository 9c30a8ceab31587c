package replica

import (
	"errors"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Goal: a reader learns what came of a command before, or that a limit refuses it now, if it asks
// for that, and which command needs its place in the log. Method: grants of a user that may have
// one lease.
func TestRepeat(t *testing.T) {
	m := lead(t)
	for _, c := range []fsm.Command{
		&fsm.UserAdd{Name: "root", NoPassword: true}, &fsm.UserGrantRole{User: "root", Role: "root"},
		&fsm.UserAdd{Name: "alice", NoPassword: true}, &fsm.AuthEnable{},
	} {
		if r := m.do(c); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	as := func(user string, c fsm.Command) *fsm.By {
		caller := access.Caller{User: user, Revision: m.m.View().Access.Revision()}
		return &fsm.By{Caller: caller, Command: c}
	}
	if r := m.do(as("root", &fsm.SetLimits{
		Of:   access.Holder{Kind: access.OfUser, Name: "alice"},
		List: []access.LimitChange{{What: access.Leases, Most: 1}},
	})); r.Err != nil {
		t.Fatal(r.Err)
	}
	grant := func(id lease.ID, request string) fsm.Command {
		terms := lease.Terms{ID: id, TTL: 60_000, RequestID: request}
		return as("alice", (&fsm.Grant{Terms: terms}).Repeatable())
	}
	first := m.do(grant(1, "first"))
	if first.Err != nil {
		t.Fatal(first.Err)
	}
	ask := func(p *Repeat) *Repeat {
		m.r.Read(&Read{Repeat: p})
		m.settle()
		return p
	}
	if p := ask(&Repeat{Command: grant(1, "first"), Limits: true}); !p.Done || p.Result.Err != nil {
		t.Errorf("the same command: %+v", p)
	}
	if p := ask(&Repeat{Command: grant(2, "second")}); p.Done {
		t.Errorf("another: %+v", p)
	}
	limit := new(access.LimitError)
	p := ask(&Repeat{Command: grant(2, "second"), Limits: true})
	if !p.Done || !errors.As(p.Result.Err, &limit) {
		t.Errorf("another, above the limit: %+v", p)
	}
	if p := ask(&Repeat{Command: as("root", &fsm.Put{Key: "k"}), Limits: true}); p.Done {
		t.Errorf("another, of one without a limit: %+v", p)
	}
}
