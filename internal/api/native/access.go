package native

import (
	"context"
	"sync"

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
type asker struct {
	who access.Caller
	by  *access.State
}

// asker returns who asks now, with the newest users and roles that this member knows.
func (s *leases) asker(ctx context.Context) asker { return askerOf(ctx, s.node.View()) }

func askerOf(ctx context.Context, v *fsm.View) asker {
	if !v.Access.Enabled() {
		return asker{}
	}
	return asker{api.CallerOf(ctx), v.Access}
}

// all reports whether everything may be told.
func (a asker) all() bool { return !a.by.Enabled() || a.known() == nil && a.by.IsRoot(a.who) }

func (a asker) known() error { return a.by.CheckKnown(a.who) }

func (a asker) reads(r keyrange.Range) error { return a.by.Check(a.who, access.Read, r) }

// sees reports whether the asker may be told of a lease. Of one that belongs to nobody, and has no
// name, only root may be told by this rule.
func (a asker) sees(i *lease.Info) bool {
	return a.by.CheckLease(a.who, access.See, fsm.BelongsTo(i)) == nil
}

// looked is what decides who may be told of a lease.
type looked struct {
	of access.Lease
	// keys are those of a lease without a name that belongs to nobody.
	keys []string
}

// look looks at a lease, for an asker that may not be told everything.
func (a asker) look(l *lease.Lessor, i *lease.Info) (of looked) {
	if of.of = fsm.BelongsTo(i); of.of == (access.Lease{}) && a.by.Enabled() {
		of.keys = l.Keys(i.ID)
	}
	return of
}

// looksAt says why the asker may not be told of a lease that it has named by a name, or with "" by
// its ID. As in etcd, a lease without a name that belongs to nobody is told to callers that may
// read all of its keys.
func (a asker) looksAt(x looked, name string) error {
	switch {
	case name != "":
		return a.by.CheckNamed(a.who, access.See, x.of)
	case x.of != (access.Lease{}) || a.all():
		return a.by.CheckLease(a.who, access.See, x.of)
	}
	if err := a.known(); err != nil {
		return err
	}
	for _, key := range x.keys {
		if err := a.reads(keyrange.Range{Key: key}); err != nil {
			return access.OfLease(err)
		}
	}
	return nil
}

// looksFor says why the asker may not be told that nobody has a name.
func (a asker) looksFor(name string) error {
	if name == "" {
		return a.known()
	}
	return a.by.CheckNamed(a.who, access.See, access.Lease{Name: name})
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
	case !a.by.Enabled() && asked != "":
		return "", invalid("principal is given, and access control is not enabled")
	case asked != "" || !a.by.Enabled():
		return asked, nil
	default:
		return a.who.User, nil
	}
}

// name returns who asks, for people.
func (a asker) name(ctx context.Context) string {
	if a.who.User != "" {
		return a.who.User
	}
	return api.Caller(ctx)
}

// need is what a request needs as long as it is open: to read ranges, and to hold a lease.
type need struct {
	reads []keyrange.Range
	holds bool // the lease
	lease access.Lease
}

// check says what of it the asker does not have. The lease comes first: what it holds is for those
// to know whose it is.
func (n *need) check(a asker) error {
	if err := a.known(); err != nil {
		return err
	}
	if n.holds {
		if err := a.by.CheckLease(a.who, access.Hold, n.lease); err != nil {
			return err
		}
	}
	for _, r := range n.reads {
		if err := a.reads(r); err != nil {
			return err
		}
	}
	return nil
}

// guard knows what the open requests of a stream need. When users or roles are others than when it
// looked last, it looks at all of them again: so a right that is taken away ends what is open
// before anything more is told. It is safe for concurrent use.
type guard struct {
	ctx  context.Context
	node interface{ View() *fsm.View }

	mu   sync.Mutex // guards what follows
	by   *access.State
	who  access.Caller
	open map[uint64]*need
	// over are requests that were refused, until their end is told.
	over map[uint64]bool
}

func newGuard(ctx context.Context, n interface{ View() *fsm.View }) *guard {
	return &guard{ctx: ctx, node: n}
}

// enter notes what a request needs, or says what of it the caller does not have.
func (g *guard) enter(id uint64, n *need) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := n.check(askerOf(g.ctx, g.node.View())); err != nil {
		return err
	}
	if g.open == nil {
		g.open, g.over = make(map[uint64]*need), make(map[uint64]bool)
	}
	g.open[id] = n
	// What was decided with an older view is decided once more.
	g.by, g.who = nil, access.Caller{}
	return nil
}

// leave forgets a request.
func (g *guard) leave(id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, id)
	delete(g.over, id)
}

// lost is a request that needs what the caller does not have any more.
type lost struct {
	id  uint64
	why error
}

// review returns the requests that are to end, each once. It costs a comparison unless users or
// roles have changed, or the login is another. An error ends the stream.
func (g *guard) review() ([]lost, error) {
	a := askerOf(g.ctx, g.node.View())
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.by == g.by && a.who == g.who {
		return nil, nil
	}
	if err := a.known(); err != nil {
		return nil, err
	}
	g.by, g.who = a.by, a.who
	var list []lost
	for id, n := range g.open {
		if err := n.check(a); err != nil {
			list = append(list, lost{id, err})
			delete(g.open, id)
			g.over[id] = true
		}
	}
	return list, nil
}

// refused reports whether a request was refused. What it had to tell is told no more.
func (g *guard) refused(id uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over[id]
}

// reviewOne is review for a call that is one request.
func (g *guard) reviewOne() error {
	list, err := g.review()
	if len(list) > 0 {
		return list[0].why
	}
	return err
}
