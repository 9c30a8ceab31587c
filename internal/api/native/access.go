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

// Commands are decided where they are applied, on behalf of their caller. What is told is decided
// here, by the users and roles of a view that is no older than what is told.

// asker is who asks, and the users and roles by which it is decided what it may be told.
type asker struct{ fsm.Asker }

// asker returns who asks now, with the newest users and roles that this member knows.
func (s *leases) asker(ctx context.Context) asker { return askerOf(ctx, s.node.View()) }

func askerOf(ctx context.Context, v *fsm.View) asker {
	if !v.Access.Enabled() {
		return asker{}
	}
	return asker{fsm.Asker{By: v.Access, Who: api.CallerOf(ctx)}}
}

// all reports whether everything may be told.
func (a asker) all() bool { return !a.By.Enabled() || a.known() == nil && a.By.IsRoot(a.Who) }

func (a asker) known() error { return a.By.CheckKnown(a.Who) }

func (a asker) reads(r keyrange.Range) error { return a.By.Check(a.Who, access.Read, r) }

// sees reports whether the asker may be told of a lease. Of one that belongs to nobody, and has no
// name, only root may be told by this rule.
func (a asker) sees(i *lease.Info) bool {
	return a.By.CheckLease(a.Who, access.See, fsm.BelongsTo(i)) == nil
}

// look looks at a lease, for an asker that may not be told everything.
func (a asker) look(l *lease.Lessor, i *lease.Info) api.Held {
	of := api.Held{ID: i.ID, Found: true, Of: fsm.BelongsTo(i), Token: i.Token}
	if of.Of == (access.Lease{}) && a.By.Enabled() {
		of.Keys = l.Keys(i.ID)
	}
	return of
}

// looksAt says why the asker may not be told of a lease that it has named by a name, or with "" by
// its ID. As in etcd, a lease without a name that belongs to nobody is told to callers that may
// read all of its keys.
func (a asker) looksAt(x api.Held, name string) error {
	if name != "" {
		return a.By.CheckNamed(a.Who, access.See, x.Of)
	}
	return a.touches(access.See, x)
}

// touches says why the asker may not hold, or see, a lease.
func (a asker) touches(what access.Kind, x api.Held) error {
	return a.MayTouch(what, x.Of, a.EachKey(slices.Values(x.Keys)))
}

// looksFor says why the asker may not be told that nobody has a name.
func (a asker) looksFor(name string) error {
	if name == "" {
		return a.known()
	}
	return a.By.CheckNamed(a.Who, access.See, access.Lease{Name: name})
}

// cut leaves out of a lease what the asker may not read: keys, and ranges that the lease holds.
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

// principal returns the user that a lease is to belong to for which the asker asks: nobody, while
// access control is not enabled.
func (a asker) principal(asked string) (string, error) {
	switch {
	case !a.By.Enabled() && asked != "":
		return "", invalid("principal is given, and access control is not enabled")
	case asked != "" || !a.By.Enabled():
		return asked, nil
	default:
		return a.Who.User, nil
	}
}

// name returns who asks, for people.
func (a asker) name(ctx context.Context) string {
	if a.Who.User != "" {
		return a.Who.User
	}
	return api.Caller(ctx)
}

// newGuard returns a guard of what one caller has open.
func newGuard(ctx context.Context, n interface{ View() *fsm.View }) *api.Guard {
	return api.NewGuard(func() (access.Caller, *access.State) {
		a := askerOf(ctx, n.View())
		return a.Who, a.By
	})
}
