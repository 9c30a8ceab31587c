package etcd

import (
	"context"
	"time"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// permitTime is for how long a stream may renew a lease without another look at its keys.
const permitTime = time.Second

// permits is which leases a stream may renew: those that its user may hold. Of a lease that belongs
// to nobody, and has no name, the user must as in etcd be allowed to write all keys: otherwise
// anybody who knows its ID could keep the keys of others alive.
type permits struct {
	node Inspector
	// state and who are with which the leases were looked at.
	state *access.State
	who   access.Caller
	until map[lease.ID]time.Time
}

// renew says why the caller may not renew a lease, nil if it may.
func (p *permits) renew(ctx context.Context, v *fsm.View, id lease.ID) error {
	if !v.Access.Enabled() {
		return nil
	}
	who := api.CallerOf(ctx)
	if err := v.Access.CheckKnown(who); err != nil || v.Access.IsRoot(who) {
		return err
	}
	if p.state != v.Access || p.who != who || len(p.until) >= maxTended {
		p.state, p.who, p.until = v.Access, who, make(map[lease.ID]time.Time)
	}
	now := time.Now()
	if until, ok := p.until[id]; ok && now.Before(until) {
		return nil
	}
	of, keys, err := p.node.LeaseOf(ctx, id)
	switch {
	case err != nil:
	case of != (access.Lease{}):
		err = v.Access.CheckLease(who, access.Hold, of)
	default:
		err = allKeys(ctx, v, access.Write, keys)
	}
	if err != nil {
		return err
	}
	p.until[id] = now.Add(permitTime)
	return nil
}
