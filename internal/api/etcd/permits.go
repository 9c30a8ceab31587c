package etcd

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
	"weak"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// permits decides which leases a stream may renew. These are the leases that its user may hold. If
// a lease has no principal, the user must be allowed to write all of its keys.
//
// The core checks each renewal. It leaves some cases undecided, which permits decides instead:
// leases that this member does not have yet, and leases with many keys.
type permits struct {
	service *leaseService
	known   knownHolder // belongs to receive
	ctx     context.Context
	cancel  context.CancelFunc
	looks   sync.WaitGroup // the goroutine that checks leases

	mu      sync.Mutex // guards the following fields
	closed  bool
	unsure  []*renewal // undecided renewals
	looking bool       // whether a goroutine is checking leases
	// until maps each lease with many keys to the time at which its check expires. The entries are
	// valid only for state and looked.
	until  map[lease.ID]time.Time
	state  weak.Pointer[access.State]
	looked access.Caller
}

// knownHolder caches the decision about a caller for one state of users and roles. A state is
// immutable, so the decision does not have to be repeated for each renewal. The pointer is weak so
// that an idle stream does not keep the state in memory.
type knownHolder struct {
	by     weak.Pointer[access.State]
	who    access.Caller
	holder *access.Caller // nil if the caller may renew every lease
}

// permitTime is how long a stream may renew a lease without checking its many keys again.
const permitTime = time.Second

// maxPermits limits the number of checks that a stream caches.
const maxPermits = 4096

// holder returns the caller that the core must check, or nil if no check is needed. It returns an
// error if the caller may not renew any leases.
func (p *permits) holder(ctx context.Context, v *fsm.View, id lease.ID) (*access.Caller, error) {
	if !v.Access.Enabled() {
		return nil, nil
	}
	who := api.CallerOf(ctx)
	if p.known.by.Value() != v.Access || p.known.who != who {
		if err := v.Access.CheckKnown(who); err != nil {
			return nil, err
		}
		p.known = knownHolder{by: weak.Make(v.Access), who: who}
		if !v.Access.IsRoot(who) {
			// copied here, because who would otherwise escape to the heap for each renewal
			holder := who
			p.known.holder = &holder
		}
	}
	if p.known.holder == nil || p.lookedAt(v, who, id) {
		return nil, nil
	}
	return p.known.holder, nil
}

// lookedAt reports whether all keys of the lease have been checked within permitTime.
func (p *permits) lookedAt(v *fsm.View, who access.Caller, id lease.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil || p.state.Value() != v.Access || p.looked != who {
		return false
	}
	until, ok := p.until[id]
	return ok && time.Now().Before(until)
}

// undecided queues a renewal that the core has left undecided. It does not block. After the stream
// has ended, it does nothing.
func (p *permits) undecided(r *renewal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.unsure = append(p.unsure, r)
	if !p.looking {
		p.looking = true
		p.looks.Go(func() {
			if err := p.look(p.ctx); err != nil {
				r.owner.finish(err)
			}
		})
	}
}

// close ends the goroutine that checks leases and waits for it.
func (p *permits) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.looks.Wait()
}

// look checks leases until there are no undecided ones left.
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
		ids := make([]lease.ID, len(list))
		for i, r := range list {
			ids[i] = r.id
		}
		by := p.service.node.View().Access
		errs, err := p.lookAt(ctx, ids)
		for i, r := range list {
			r.holder = nil
			if err := cmp.Or(err, errs[i]); err != nil {
				r.Renewed(r.id, 0, err)
			} else if err := p.service.node.Renew(r.id, by, r); err != nil {
				r.Renewed(r.id, 0, err)
			}
		}
	}
}

// lookAt checks whether the caller may renew each lease and returns one error per lease. It queries
// the leader once about all leases that this member does not have, because they may be new.
func (p *permits) lookAt(ctx context.Context, ids []lease.ID) ([]error, error) {
	node, errs := p.service.node, make([]error, len(ids))
	found := make([]api.Held, len(ids))
	for i, id := range ids {
		found[i].ID = id
	}
	if err := api.Gather(found, func(f func(*lease.Lessor)) error {
		return node.InspectHere(ctx, func(l *lease.Lessor, _ uint64) { f(l) })
	}); err != nil {
		return errs, err
	}
	var missing []int
	var there []api.Held
	for i := range found {
		if !found[i].Found {
			missing, there = append(missing, i), append(there, api.Held{ID: found[i].ID})
		}
	}
	if err := api.Gather(there, func(f func(*lease.Lessor)) error {
		return node.Inspect(ctx, f)
	}); err != nil {
		return errs, err
	}
	for i, at := range missing {
		found[at] = there[i]
	}
	a := fsm.Asker{By: node.View().Access, Who: api.CallerOf(ctx)} // at least as new as the leases
	for i := range found {
		errs[i] = p.decide(a, &found[i])
	}
	return errs, nil
}

// decide returns an error if the caller may not renew a lease. If the caller may renew the lease
// because of its keys, decide caches that result.
func (p *permits) decide(a fsm.Asker, x *api.Held) error {
	if !x.Found {
		return lease.ErrNotFound
	}
	err := a.MayTouch(access.Hold, x.Of, a.EachKey(slices.Values(x.Keys)))
	if err != nil || x.Of != (access.Lease{}) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Value() != a.By || p.looked != a.Who || len(p.until) >= maxPermits {
		p.state, p.looked = weak.Make(a.By), a.Who
		p.until = make(map[lease.ID]time.Time)
	}
	p.until[x.ID] = time.Now().Add(permitTime)
	return nil
}
