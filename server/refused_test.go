package server

import (
	"errors"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
	"leasehold.dev/test/virtual"
)

// Goal: what a tenant that is at its limit asks for again and again does not stand in the log, so
// that nobody else waits for it; and when it has room it gets what it asks for, at once. Method: a
// user at its limit of leases asks for more, in calls and over a stream, one at a time and many at
// once; the entries are counted. Then it revokes one.
func TestRefusalsStayOutOfTheLog(t *testing.T) { virtual.Test(t, testRefusalsStayOutOfTheLog) }

func testRefusalsStayOutOfTheLog(t *testing.T) {
	const tries = 100
	r := run(t, cheapConfig(t.TempDir()))
	withUsers(t, r)
	ctx := r.tenant(t, "tenant", 2, 1)
	who := api.CallerOf(ctx)
	grant := func(id lease.ID) *fsm.Grant {
		return &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 60_000}}
	}
	call := func(c fsm.Command) error {
		res, err := r.node.Propose(ctx, c)
		return errors.Join(err, res.Err)
	}
	submit := func(ids ...lease.ID) (out []error) {
		to := make(answered, len(ids))
		var list []native.Submission
		for _, id := range ids {
			list = append(list, native.Submission{Command: fsm.OnBehalf(who, grant(id)), To: to})
		}
		r.node.Submit(list)
		for range ids {
			out = append(out, <-to)
		}
		return out
	}
	refused := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			limit := new(access.LimitError)
			if !errors.As(err, &limit) || limit.Limit != 2 || limit.Used != 2 || limit.Asked != 1 {
				t.Fatalf("beyond the limit: %v", err)
			}
		}
	}
	before := r.node.View().Index
	many := make([]lease.ID, tries)
	for i := range many {
		many[i] = lease.ID(100 + i)
		refused(call(grant(many[i])))
		refused(submit(many[i])...)
	}
	refused(submit(many...)...)
	if after := r.node.View().Index; after-before > tries/2 {
		t.Errorf("%d entries of the log for %d refusals", after-before, 3*tries)
	}
	counts := r.node.limits.Refusals(access.Leases)
	if n := counts["tenant"] + counts[""]; n != 3*tries+1 {
		t.Errorf("%d refusals were counted", n)
	}

	for _, again := range []struct {
		way        string
		ends, gets lease.ID
		grant      func() error
	}{
		{"a call", lease.ID(1000 * len(r.node.View().Access.Users())), 1, func() error {
			return call(grant(1))
		}},
		{"a stream", 1, 2, func() error { return submit(2)[0] }},
	} {
		if err := call(&fsm.Revoke{ID: again.ends}); err != nil {
			t.Fatal(err)
		}
		if err := again.grant(); err != nil {
			t.Errorf("%s, with room again: %v", again.way, err)
		}
		if err := r.node.InspectLease(t.Context(), again.gets, func(
			_ *lease.Lessor, _ lease.TTL, found bool,
		) {
			if !found {
				t.Errorf("%s, with room again: it was granted, and is not there", again.way)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if r.node.limits.IsFull("tenant") {
			t.Errorf("%s, with room again: each command of the tenant is looked at twice", again.way)
		}
		refused(call(grant(50)))
		refused(submit(50)...)
	}
}

// Goal: as TestRefusalsStayOutOfTheLog, of leases that somebody asks for on behalf of a tenant that
// is at its limit, while it gets others for itself and for another tenant.
func TestRefusalsOnBehalfStayOutOfTheLog(t *testing.T) {
	virtual.Test(t, testRefusalsOnBehalfStayOutOfTheLog)
}

func testRefusalsOnBehalfStayOutOfTheLog(t *testing.T) {
	const tries = 100
	r := run(t, cheapConfig(t.TempDir()))
	withUsers(t, r)
	r.tenant(t, "tenant", 2, 1)
	r.asRoot(t, &fsm.UserAdd{Name: "other", NoPassword: true})
	root := access.Caller{User: "root", Revision: r.node.View().Access.Revision()}
	ctx := api.WithCaller(t.Context(), root)
	grant := func(id lease.ID, of string) *fsm.Grant {
		return &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 60_000, Principal: of}}
	}
	before := r.node.View().Index
	for i := range lease.ID(tries) {
		to := make(answered, 1)
		r.node.Submit([]native.Submission{{Command: fsm.OnBehalf(root, grant(1, "tenant")), To: to}})
		res, err := r.node.Propose(ctx, grant(2, "tenant"))
		for _, err := range []error{<-to, errors.Join(err, res.Err)} {
			if limit := new(access.LimitError); !errors.As(err, &limit) || limit.Principal != "tenant" {
				t.Fatalf("beyond the limit: %v", err)
			}
		}
		for n, of := range []string{"", "other"} {
			res, err := r.node.Propose(ctx, grant(100+2*i+lease.ID(n), of))
			if err := errors.Join(err, res.Err); err != nil {
				t.Fatal(err)
			}
		}
	}
	if after := r.node.View().Index; after-before > 2*tries+tries/2 {
		t.Errorf("%d entries of the log for %d grants and as many refusals", after-before, 2*tries)
	}
	for _, of := range []string{"root", "other"} {
		if r.node.limits.IsFull(of) {
			t.Errorf("commands of %q are looked at twice", of)
		}
	}
}
