package fsm

import (
	"errors"
	"math/rand/v2"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/lease"
)

// bound returns a command from a bound principal with the given roles.
func bound(m *Machine, name string, c Command, roles ...string) *By {
	return &By{access.Caller{
		User: name, Revision: m.meta.access.Revision(), Bound: &access.Bound{Roles: roles},
	}, c}
}

// TestBoundIsLikeUser checks that a bound principal has the same permissions as a user with the
// same roles.
func TestBoundIsLikeUser(t *testing.T) {
	m := tenants(t)
	rng := rand.New(rand.NewPCG(3, 3))
	allowed, trees := 0, 20_000
	for n := range trees {
		txn := randomTree(rng, 3)
		want := m.denied(as(m, "alice", txn))
		got := m.denied(bound(m, "spiffe://d/a", txn, "a"))
		if (got == nil) != (want == nil) || want != nil && !errors.Is(got, access.ErrPermissionDenied) {
			t.Fatalf("tree %d: %v, of the user %v", n, got, want)
		}
		if want == nil {
			allowed++
		}
	}
	if allowed < trees/10 || allowed > trees-trees/10 {
		t.Errorf("%d of %d are allowed: the test tells little", allowed, trees)
	}
}

// TestBoundByState checks that a bound principal's permissions follow from the current definition
// of its roles when the command is applied. It gets no permissions from being named like a user,
// from an unknown role or from an old revision.
func TestBoundByState(t *testing.T) {
	m := tenants(t)
	put := &Put{Key: "a"}
	old := bound(m, "spiffe://d/a", put, "a")
	for name, c := range map[string]struct {
		c    Command
		want error
	}{
		"with the role":           {old, nil},
		"with another too":        {bound(m, "spiffe://d/a", put, "c", "a"), nil},
		"with another":            {bound(m, "spiffe://d/a", put, "c"), access.ErrPermissionDenied},
		"with none":               {bound(m, "spiffe://d/a", put), access.ErrPermissionDenied},
		"with one that is gone":   {bound(m, "spiffe://d/a", put, "x"), access.ErrPermissionDenied},
		"with the name of a user": {bound(m, "alice", put, "a"), access.ErrPermissionDenied},
		"as root by name":         {bound(m, "root", put, "root"), access.ErrPermissionDenied},
		"without a name":          {bound(m, "", put, "a"), access.ErrPermissionDenied},
		"a user, by a reader":     {bound(m, "p", &UserDelete{"bob"}, "a"), access.ErrPermissionDenied},
		"a user, by root's name":  {bound(m, "root", &UserDelete{"bob"}, "root"), access.ErrUserNotFound},
		"a user, by the role":     {bound(m, "p", &UserDelete{"bob"}, "root"), nil},
	} {
		m := restored(t, m)
		if r := apply(t, m, c.c); !errors.Is(r.Err, c.want) || (r.Err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, not %v", name, r.Err, c.want)
		}
	}
	mustApply(t, m, as(m, "root", &RoleRevoke{Role: "a", Key: "a", End: "b"}))
	if r := apply(t, m, old); !errors.Is(r.Err, access.ErrOldRevision) {
		t.Errorf("with a login of before: %v", r.Err)
	}
	again := bound(m, "spiffe://d/a", put, "a")
	if r := apply(t, m, again); !errors.Is(r.Err, access.ErrPermissionDenied) {
		t.Errorf("when the role may no more: %v", r.Err)
	}
}

// TestBoundOwns checks that other principals with the same roles cannot use the leases and sessions
// of a bound principal. It cannot hand a lease over to another principal.
func TestBoundOwns(t *testing.T) {
	m := tenants(t)
	const checkHold, other = "spiffe://d/mine", "spiffe://d/other"
	grant := &Grant{Terms: lease.Terms{ID: 7, TTL: 1000, Principal: checkHold}}
	mustApply(t, m, bound(m, checkHold, grant, "a"))
	s := mustApply(t, m, bound(m, checkHold, &OpenSession{Nonce: 1}, "a")).(Session)
	once := &Once{Session: s, Number: 1, Command: &Put{Key: "a"}}
	m = restored(t, m)
	mustApply(t, m, bound(m, checkHold, once, "a"))
	info, _ := m.lessor.Lookup(7)
	put := &Put{Key: "a", Lease: 7}
	over := func(to string) Command { return &HandOver{ID: 7, Token: info.Token, Principal: to} }
	for name, c := range map[string]struct {
		c    Command
		want error
	}{
		"revoked by another":     {bound(m, other, &Revoke{ID: 7}, "a"), access.ErrPermissionDenied},
		"revoked by a user":      {as(m, "alice", &Revoke{ID: 7}), access.ErrPermissionDenied},
		"used by another":        {bound(m, other, put, "a"), access.ErrPermissionDenied},
		"granted to another":     {bound(m, other, grant, "a"), access.ErrPermissionDenied},
		"of the session":         {bound(m, other, once, "a"), ErrSessionNotFound},
		"to another":             {bound(m, checkHold, over(other), "a"), access.ErrPermissionDenied},
		"to a user":              {bound(m, checkHold, over("bob"), "a"), access.ErrPermissionDenied},
		"to a user, by root":     {as(m, "root", over("bob")), nil},
		"to itself":              {bound(m, checkHold, over(checkHold), "a"), nil},
		"its own, with no roles": {bound(m, checkHold, &Revoke{ID: 7}), nil},
	} {
		if r := apply(t, restored(t, m), c.c); !errors.Is(r.Err, c.want) ||
			(r.Err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, not %v", name, r.Err, c.want)
		}
	}
	mustApply(t, m, as(m, "root", &UserAdd{Name: checkHold, NoPassword: true}))
	if r := apply(t, m, bound(m, checkHold, &Revoke{ID: 7}, "root")); r.Err == nil {
		t.Error("a principal with the name of a user does what that may")
	}
}
