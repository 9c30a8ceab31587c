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

// asker is a caller together with the users and roles that determine its permissions.
type asker struct{ fsm.Asker }

// asker returns the caller with the newest users and roles on this member.
func (s *leases) asker(ctx context.Context) asker { return askerOf(ctx, s.node.View()) }

func askerOf(ctx context.Context, v *fsm.View) asker {
	if !v.Access.Enabled() {
		return asker{}
	}
	return asker{fsm.Asker{By: v.Access, Who: api.CallerOf(ctx)}}
}

// all reports whether the caller may see everything.
func (a asker) all() bool { return !a.By.Enabled() || a.known() == nil && a.By.IsRoot(a.Who) }

func (a asker) known() error { return a.By.CheckKnown(a.Who) }

func (a asker) reads(r keyrange.Range) error { return a.By.Check(a.Who, access.Read, r) }

// sees reports whether the caller may see a lease. If the lease has neither a name nor a principal,
// only root may see it.
func (a asker) sees(i *lease.Info) bool {
	return a.By.CheckLease(a.Who, access.See, fsm.BelongsTo(i)) == nil
}

// look returns the data needed to check whether the caller may see a lease.
func (a asker) look(l *lease.Lessor, i *lease.Info) api.Held {
	of := api.Held{ID: i.ID, Found: true, Of: fsm.BelongsTo(i), Token: i.Token}
	if of.Of == (access.Lease{}) && a.By.Enabled() {
		of.Keys = l.Keys(i.ID)
	}
	return of
}

// looksAt returns an error if the caller may not see a lease. The caller referred to the lease by
// name, or by ID if name is "". As in etcd, a lease without a name and a principal is visible to
// callers that may read all of its keys.
func (a asker) looksAt(x api.Held, name string) error {
	if name != "" {
		return a.By.CheckNamed(a.Who, access.See, x.Of)
	}
	return a.touches(access.See, x)
}

// touches returns an error if the caller may not hold or see the lease.
func (a asker) touches(what access.Kind, x api.Held) error {
	return a.MayTouch(what, x.Of, a.EachKey(slices.Values(x.Keys)))
}

// looksFor returns an error if the caller may not find out whether the name is taken.
func (a asker) looksFor(name string) error {
	if name == "" {
		return a.known()
	}
	return a.By.CheckNamed(a.Who, access.See, access.Lease{Name: name})
}

// cut removes the keys and held ranges of a lease that the caller may not read.
func (a asker) cut(m *pb.Lease) {
	if a.all() {
		return
	}
	keys, holds := m.Keys[:0], m.Holds[:0]
	for _, k := range m.Keys {
		if a.reads(keyrange.Range{Key: string(k)}) == nil {
			keys = append(keys, k)
		}
	}
	for _, r := range m.Holds {
		if a.reads(keyrange.Range{Key: string(r.Key), End: string(r.RangeEnd)}) == nil {
			holds = append(holds, r)
		}
	}
	m.Keys, m.Holds = keys, holds
}

// principal returns the principal of a lease that the caller is about to create or hand over. If
// the request does not specify one, it is the caller, or "" if access control is disabled.
func (a asker) principal(asked string) (string, error) {
	switch {
	case !a.By.Enabled() && asked != "":
		return "", invalid("principal is set, but access control is not enabled")
	case asked != "" || !a.By.Enabled():
		return asked, nil
	default:
		return a.Who.User, nil
	}
}

// name returns a readable name or address for the caller.
func (a asker) name(ctx context.Context) string {
	if a.Who.User != "" {
		return a.Who.User
	}
	return api.Caller(ctx)
}

// newGuard returns a guard for the open requests of one caller.
func newGuard(ctx context.Context, n interface{ View() *fsm.View }) *api.Guard {
	return api.NewGuard(func() (access.Caller, *access.State) {
		a := askerOf(ctx, n.View())
		return a.Who, a.By
	})
}
