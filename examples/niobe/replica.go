package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"leasehold.dev/lease"
)

var (
	errCutOff = errors.New("the replica is cut off")
	errLease  = errors.New("not the primary, or missing a lease from a secondary")
	errConfig = errors.New("the replica has a different configuration")
)

// granted is the ID of the only lease granted by a secondary.
const granted lease.ID = 1

// drift is the maximum relative difference between clock rates. The holder shortens the lease
// accordingly.
const drift = 1e-3

// replica is a replica of the value. A primary holds leases from its secondaries; a secondary is
// the lessor of its primary. The methods implement the messages that a replica receives.
type replica struct {
	name  string
	group *group
	began time.Time

	mu     sync.Mutex
	cut    bool
	config config
	value  string
	// behind is set if this replica was removed and has not since received the value from a
	// primary.
	behind bool
	// valid holds the instant until which each secondary's lease is valid by the primary's clock.
	valid map[string]time.Time
	// lessor times the lease that this secondary granted to its primary.
	lessor *lease.Lessor
}

func newReplica(name string, g *group) *replica {
	return &replica{name: name, group: g, began: time.Now()}
}

// live runs a replica's continuous work: a primary sends a beacon to each secondary, and a
// secondary checks its primary's lease.
func (r *replica) live(ctx context.Context) error {
	for {
		if err := r.step(ctx); err != nil && !errors.Is(err, errCutOff) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(r.group.ttl / 4):
		}
	}
}

func (r *replica) step(ctx context.Context) error {
	r.mu.Lock()
	cut := r.cut
	r.mu.Unlock()
	if cut {
		return errCutOff
	}
	c, err := r.group.current(ctx)
	if err != nil {
		return err
	}
	r.adopt(c)
	switch {
	case !c.has(r.name):
		return r.group.replace(ctx, c, config{Replicas: append(slices.Clone(c.Replicas), r.name)})
	case c.primary() == r.name:
		return r.beacons(ctx, c)
	case r.expired():
		return r.group.replace(ctx, c, c.without(c.primary(), r.name))
	}
	return nil
}

// adopt starts a configuration, either as a primary without leases or as a secondary with a new
// lease for the primary.
func (r *replica) adopt(c config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.revision <= r.config.revision {
		return
	}
	r.config, r.valid = c, make(map[string]time.Time)
	r.behind = r.behind || !c.has(r.name)
	r.lessor = lease.New(lease.Config{})
	r.lessor.Promote(r.now())
	terms := lease.Terms{ID: granted, TTL: lease.TTL(r.group.ttl.Milliseconds())}
	if _, err := r.lessor.Grant(terms); err != nil {
		panic(err) // cannot fail, because a new lessor has no lease with this ID
	}
}

// now returns the time on this replica's own clock.
func (r *replica) now() lease.Instant { return lease.Instant(time.Since(r.began).Milliseconds()) }

// expired reports whether this secondary may take over, which requires that the lease it granted
// has expired and that it has everything that was acknowledged.
func (r *replica) expired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lessor.Advance(r.now())
	return len(r.lessor.Due(1)) > 0 && !r.behind
}

// beacons renews the primary's leases, counting each from before its request. It removes a
// secondary that has not acknowledged for an entire TTL.
func (r *replica) beacons(ctx context.Context, c config) error {
	for _, name := range c.Replicas[1:] {
		r.mu.Lock()
		until, value := r.valid[name], r.value
		r.mu.Unlock()
		sent := time.Now()
		if err := r.group.replicas[name].renew(c, value); err != nil {
			if !until.IsZero() && time.Now().After(until) {
				return r.group.replace(ctx, c, c.without(name, r.name))
			}
			continue
		}
		r.mu.Lock()
		if r.config.revision == c.revision && !r.cut {
			r.valid[name] = sent.Add(time.Duration((1 - drift) * float64(r.group.ttl)))
		}
		r.mu.Unlock()
	}
	return nil
}

// renew handles the primary's beacon: the secondary renews its lease. A replica that has returned
// after being removed also receives the value. Until then, the primary writes nothing.
func (r *replica) renew(c config, value string) error {
	r.adopt(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.cut:
		return errCutOff
	case r.config.revision != c.revision:
		return errConfig
	}
	if r.behind {
		r.value, r.behind = value, false
	}
	r.lessor.Advance(r.now())
	_, err := r.lessor.Renew(granted, 0)
	return err
}

// check returns nil while the replica is the primary and holds a valid lease from every secondary.
// The caller must hold the lock.
func (r *replica) check() error {
	if len(r.config.Replicas) == 0 || r.config.primary() != r.name {
		return errLease
	}
	for _, name := range r.config.Replicas[1:] {
		if !time.Now().Before(r.valid[name]) {
			return errLease
		}
	}
	return nil
}

// read returns the value if this replica may read it. The value is current, because no secondary
// can become the primary until the lease it granted to this one has expired.
func (r *replica) read() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	value := r.value
	return value, r.check()
}

// write changes the value on all replicas.
func (r *replica) write(value string) error {
	r.mu.Lock()
	c, err := r.config, r.check()
	r.mu.Unlock()
	if err != nil {
		return err
	}
	for _, name := range append(c.Replicas[1:], r.name) {
		if err := r.group.replicas[name].take(c, value); err != nil {
			return err
		}
	}
	return nil
}

// take handles a value sent by the primary. It rejects the value if the sender's configuration is
// old.
func (r *replica) take(c config, value string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.cut:
		return errCutOff
	case r.config.revision != c.revision:
		return errConfig
	}
	r.value = value
	return nil
}

// cutOff disconnects the replica from the other replicas and from the cluster.
func (r *replica) cutOff() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
}
