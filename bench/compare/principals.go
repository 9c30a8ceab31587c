package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	leaseholdv1 "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/load"
)

const (
	// heldBatch is how many leases a principal renews with a message, and heldWindow how many
	// principals wait for an answer at a time, for each of load.RenewStreams callers.
	heldBatch  = 100
	heldWindow = 8
)

// held are the leases of principals, as many for each, who have a connection each.
type held struct {
	client  *load.Client
	ids     []int64
	tokens  []uint64
	batches []*batches // of each principal
}

// hold connects the principals, and grants each its leases. Without users they are nobody, and have
// as many connections.
func (e *Env) hold(ctx context.Context) (*held, error) {
	var endpoints []string
	for _, m := range e.Server.members {
		endpoints = append(endpoints, m.endpoint)
	}
	c, err := dial(endpoints, e.Principals, e.Server.tokens...)
	if err != nil {
		return nil, err
	}
	each := e.Held / e.Principals
	h := &held{
		client: c, ids: make([]int64, each*e.Principals), tokens: make([]uint64, each*e.Principals),
	}
	err = load.Spread(ctx, 64, len(h.ids), func(ctx context.Context, _, i int) error {
		r, err := leaseholdv1.NewLeaseServiceClient(c.Conn(i/each)).Grant(ctx,
			&leaseholdv1.GrantRequest{TtlMs: longTTL * 1000})
		h.ids[i], h.tokens[i] = r.GetLease().GetId(), r.GetLease().GetToken()
		return err
	})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return h, nil
}

// open opens a stream of leasehold.v1 for each principal.
func (h *held) open(ctx context.Context, principals int) error {
	each := len(h.ids) / principals
	for i := range principals {
		s, err := leaseholdv1.NewStreamServiceClient(h.client.Conn(i)).Open(ctx)
		if err != nil {
			return err
		}
		h.batches = append(h.batches, &batches{
			stream: s, open: make(map[uint64]*renewing), size: min(heldBatch, each),
			leases: h.ids[i*each:][:each], tokens: h.tokens[i*each:][:each],
		})
	}
	return nil
}

// runHeldRenew has all principals renew their leases round and round, in batches over leasehold.v1.
func runHeldRenew(ctx context.Context, e *Env) (Result, error) {
	h, err := e.hold(ctx)
	if err != nil {
		return Result{}, err
	}
	defer h.client.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := h.open(ctx, e.Principals); err != nil {
		return Result{}, err
	}
	if err := h.renew(time.Now(), nil); err != nil { // each once: the member has looked at all
		return Result{}, err
	}
	var m measure
	err = m.during(e.Server, func() error { return h.renew(time.Now().Add(e.Duration), &m.hist) })
	return m.result(), err
}

// renew has all principals renew by turns until a time, and each all its leases once at least.
func (h *held) renew(until time.Time, hist *load.Histogram) error {
	return load.Parallel(load.RenewStreams, func(caller int, mine *load.Histogram) error {
		var waiting []*batches
		each := len(h.ids) / len(h.batches)
		for sent := 0; sent < each || time.Now().Before(until); sent += h.batches[0].size {
			for i := caller; i < len(h.batches); i += load.RenewStreams {
				b := h.batches[i]
				b.hist = mine
				if err := b.send(b.last + 1); err != nil {
					return err
				}
				if waiting = append(waiting, b); len(waiting) < heldWindow {
					continue
				}
				if err := waiting[0].settle(); err != nil {
					return err
				}
				waiting = waiting[1:]
			}
		}
		for _, b := range waiting {
			if err := b.settle(); err != nil {
				return err
			}
		}
		return nil
	}, hist)
}

// runHeldPut has principals put by turns, each 100 keys on one of its leases.
func runHeldPut(ctx context.Context, e *Env) (Result, error) {
	h, err := e.hold(ctx)
	if err != nil {
		return Result{}, err
	}
	defer h.client.Close()
	const callers, keys = 64, 100
	each, value := len(h.ids)/e.Principals, make([]byte, load.ValueSize)
	return inLoop(callers, func(context.Context, *Env) (load.Op, error) {
		return func(ctx context.Context, caller, i int) error {
			who := (i*callers + caller) % e.Principals
			_, err := h.client.KV(who).Put(ctx, &pb.PutRequest{
				Key:   fmt.Appendf(nil, "put/%04d/%04d", who, i*callers/e.Principals%keys),
				Value: value, Lease: h.ids[who*each],
			})
			return err
		}, nil
	})(ctx, e)
}

// principalWorkloads are those of very many principals, who have many leases.
func principalWorkloads() []Workload {
	return []Workload{
		{
			Name: "principals-renew", Own: true, run: runHeldRenew,
			Doc: "leases (-held) of principals (-users) who have a stream each: renewals of 100",
		},
		{
			Name: "principals-put", Own: true, run: runHeldPut,
			Doc: "puts of these principals on their leases, by turns, 64 at a time",
		},
	}
}
