package native

import (
	"context"
	"slices"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Permissions for commands are checked when the commands are applied. Permissions to read are
// checked here, against the users and roles in a view that is at least as new as the response.

// authorizer is a caller together with the users and roles that determine its permissions.
type authorizer struct{ fsm.Authorizer }

// authorizer returns the caller with the newest users and roles on this member.
func (s *leases) authorizer(ctx context.Context) authorizer {
	return authorizerOf(ctx, s.node.View())
}

func authorizerOf(ctx context.Context, v *fsm.View) authorizer {
	if !v.Access.Enabled() {
		return authorizer{}
	}
	return authorizer{fsm.Authorizer{State: v.Access, Caller: api.CallerOf(ctx)}}
}

// seesAll reports whether the caller may see everything.
func (a authorizer) seesAll() bool {
	return !a.State.Enabled() || a.checkLogin() == nil && a.State.IsRoot(a.Caller)
}

func (a authorizer) checkLogin() error { return a.State.CheckKnown(a.Caller) }

func (a authorizer) checkRead(r keyrange.Range) error {
	return a.State.Check(a.Caller, access.Read, r)
}

// maySee reports whether the caller may see a lease. If the lease has neither a name nor a
// principal, only root may see it.
func (a authorizer) maySee(i *lease.Info) bool {
	return a.State.CheckLease(a.Caller, access.See, fsm.BelongsTo(i)) == nil
}

// heldInfo returns the data needed to check whether the caller may see a lease.
func (a authorizer) heldInfo(l *lease.Lessor, i *lease.Info) api.Held {
	of := api.Held{ID: i.ID, Found: true, Of: fsm.BelongsTo(i), Token: i.Token}
	if of.Of == (access.Lease{}) && a.State.Enabled() {
		of.Keys = l.Keys(i.ID)
	}
	return of
}

// checkSee returns an error if the caller may not see a lease. The caller referred to the lease by
// name, or by ID if name is "". As in etcd, a lease with neither a name nor a principal is visible
// to callers that may read all of its keys.
func (a authorizer) checkSee(x api.Held, name string) error {
	if name != "" {
		return a.State.CheckNamed(a.Caller, access.See, x.Of)
	}
	return a.checkLease(access.See, x)
}

// checkLease returns an error if the caller may not hold or see the lease.
func (a authorizer) checkLease(what access.Kind, x api.Held) error {
	return a.MayTouch(what, x.Of, a.EachKey(slices.Values(x.Keys)))
}

// checkName returns an error if the caller may not find out whether the name is taken.
func (a authorizer) checkName(name string) error {
	if name == "" {
		return a.checkLogin()
	}
	return a.State.CheckNamed(a.Caller, access.See, access.Lease{Name: name})
}

// redact removes the keys and held ranges of a lease that the caller may not read.
func (a authorizer) redact(m *pb.Lease) {
	if a.seesAll() {
		return
	}
	keys, holds := m.Keys[:0], m.Holds[:0]
	for _, k := range m.Keys {
		if a.checkRead(keyrange.Range{Key: string(k)}) == nil {
			keys = append(keys, k)
		}
	}
	for _, r := range m.Holds {
		if a.checkRead(keyrange.Range{Key: string(r.Key), End: string(r.RangeEnd)}) == nil {
			holds = append(holds, r)
		}
	}
	m.Keys, m.Holds = keys, holds
}

// principal returns the principal of a lease that the caller is about to create or hand over. If
// the request does not specify one, it is the caller, or "" if access control is disabled.
func (a authorizer) principal(asked string) (string, error) {
	switch {
	case !a.State.Enabled() && asked != "":
		return "", invalid("principal is set, but access control is not enabled")
	case asked != "" || !a.State.Enabled():
		return asked, nil
	default:
		return a.Caller.User, nil
	}
}

// name returns a readable name or address for the caller.
func (a authorizer) name(ctx context.Context) string {
	if a.Caller.User != "" {
		return a.Caller.User
	}
	return api.Caller(ctx)
}

// newGuard returns a guard for the open requests of one caller.
func newGuard(ctx context.Context, n interface{ View() *fsm.View }) *api.Guard {
	return api.NewGuard(func() (access.Caller, *access.State) {
		a := authorizerOf(ctx, n.View())
		return a.Caller, a.State
	})
}
