package etcd

import (
	"context"
	"slices"
	"sync"
	"time"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// permits is which leases a stream may renew: those that its user may hold, or of which it may
// write all keys if they are nobody's. The core decides with each renewal. What it leaves undecided
// is looked at here: leases that this member does not know, and those with many keys.
type permits struct {
	service *leaseService
	who     *access.Caller // belongs to receive

	mu      sync.Mutex // guards what follows
	unsure  []*renewal // undecided
	looking bool       // a goroutine looks at them
	// until is how long leases with many keys count as looked at, with state and for whom.
	until  map[lease.ID]time.Time
	state  *access.State
	looked access.Caller
}

// permitTime is for how long a stream may renew a lease without another look at its many keys.
const permitTime = time.Second

// maxPermits bounds what a stream remembers of leases.
const maxPermits = 4096

// holder returns for whom the core is to decide, nil for nobody, or why the caller may renew
// nothing at all.
func (p *permits) holder(ctx context.Context, v *fsm.View, id lease.ID) (*access.Caller, error) {
	if !v.Access.Enabled() {
		return nil, nil
	}
	who := api.CallerOf(ctx)
	if err := v.Access.CheckKnown(who); err != nil || v.Access.IsRoot(who) || p.lookedAt(v, who, id) {
		return nil, err
	}
	if p.who == nil || *p.who != who {
		w := who
		p.who = &w
	}
	return p.who, nil
}

// lookedAt reports whether all keys of a lease were looked at a moment ago.
func (p *permits) lookedAt(v *fsm.View, who access.Caller, id lease.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil || p.state != v.Access || p.looked != who {
		return false
	}
	until, ok := p.until[id]
	return ok && time.Now().Before(until)
}

// undecided looks at the lease of a renewal that the core has not decided. It does not wait.
func (p *permits) undecided(r *renewal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unsure = append(p.unsure, r)
	if !p.looking {
		p.looking = true
		go func() {
			if err := p.look(r.owner.stream.Context()); err != nil {
				r.owner.finish(err)
			}
		}()
	}
}

// look looks at leases until none is undecided.
func (p *permits) look(ctx context.Context) (err error) {
	defer p.service.panics.End("keep alive", &err)
	for {
		p.mu.Lock()
		list := p.unsure
		p.unsure, p.looking = nil, len(list) > 0
		p.mu.Unlock()
		if len(list) == 0 {
			return nil
		}
		for _, r := range list {
			r.holder = nil
			err := p.lookAt(ctx, r.id)
			if err == nil {
				err = p.service.node.Renew(r.id, r)
			}
			if err != nil {
				r.Renewed(r.id, 0, err)
			}
		}
	}
}

// lookAt says why the caller may not renew a lease. It asks the leader for one that is not here:
// this member may not know it yet.
func (p *permits) lookAt(ctx context.Context, id lease.ID) error {
	node := p.service.node
	var here, there whose
	err := node.InspectHere(ctx, func(l *lease.Lessor, _ uint64) { here.read(l, id) })
	if err == nil && !here.found {
		err = node.Inspect(ctx, func(l *lease.Lessor) { there.read(l, id) })
		if err == nil {
			here = there
		}
	}
	v, who := node.View(), api.CallerOf(ctx) // as new as the lease, or newer
	switch {
	case err != nil:
		return err
	case !here.found:
		return lease.ErrNotFound
	}
	a := fsm.Asker{By: v.Access, Who: who}
	err = a.MayTouch(access.Hold, here.of, a.EachKey(slices.Values(here.keys)))
	if err != nil || here.of != (access.Lease{}) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != v.Access || p.looked != who || len(p.until) >= maxPermits {
		p.state, p.looked, p.until = v.Access, who, make(map[lease.ID]time.Time)
	}
	p.until[id] = time.Now().Add(permitTime)
	return nil
}

// whose is what decides who may renew a lease.
type whose struct {
	found bool
	of    access.Lease
	keys  []string // of a lease that is nobody's and has no name
}

// read takes what there is of a lease.
func (x *whose) read(l *lease.Lessor, id lease.ID) {
	info, found := l.Lookup(id)
	x.found, x.of = found, fsm.BelongsTo(&info)
	if x.of == (access.Lease{}) {
		x.keys = l.Keys(id)
	}
}
