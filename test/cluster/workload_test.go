package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A worker makes one call after the other and records them.
type worker struct {
	id   int
	c    *clientv3.Client
	rng  *rand.Rand
	h    *history
	next int64 // numbers values and leases

	leases []int64          // granted, and not known to be gone
	mods   map[string]int64 // mod revision of each key as last seen
}

// workPrefix begins the keys of the workers, and no others.
const workPrefix = "work/"

// opPatience is how long a call may take. A member that is stopped or cut off
// does not answer at all.
const opPatience = 2 * time.Second

// work starts one worker for each member, that knows only this one, and one
// that knows all, until stop is called.
func work(t *testing.T, c *cluster, rng *rand.Rand, h *history) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	endpoints := [][]*member{c.members}
	for _, m := range c.members {
		endpoints = append(endpoints, []*member{m})
	}
	for i, members := range endpoints {
		w := &worker{
			id: i + 1, c: client(t, members...), h: h, mods: map[string]int64{},
			rng: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())),
		}
		wg.Go(func() { w.run(ctx) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// run works at a rate that leaves the machine time for the servers.
func (w *worker) run(ctx context.Context) {
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.step(ctx)
		}
	}
}

// step makes one call. Its answer is recorded even if the test ends meanwhile.
func (w *worker) step(ctx context.Context) {
	c := w.choose()
	ctx, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	called := now()
	a, err := w.do(ctx, c)
	switch {
	case err == nil:
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		a = answer{outcome: refused}
	default:
		// Not even a refusal by a member that has no leader says that the
		// call's first try had no effect.
		a = answer{outcome: unknown}
	}
	w.h.add(w.id, c, called, a)
	w.learn(c, a)
}

// choose picks the next call.
func (w *worker) choose() call {
	w.next++
	c := call{
		key:   fmt.Sprintf("%s%d", workPrefix, w.rng.IntN(5)),
		value: fmt.Sprintf("v%d-%d", w.id, w.next),
	}
	n := w.rng.IntN(100)
	if len(w.leases) > 0 {
		c.lease = w.leases[w.rng.IntN(len(w.leases))]
	}
	switch {
	case len(w.leases) < 2 || n < 2:
		// A client's leases have numbers of their own, so that a grant without
		// an answer is one that may exist.
		return call{verb: grant, lease: int64(w.id)*1_000_000 + w.next, ttl: workTTL}
	case n < 6:
		return call{verb: revoke, lease: c.lease}
	case n < 16:
		return call{verb: keepAlive, lease: c.lease}
	case n < 45:
		return call{verb: get, key: c.key}
	case n < 53:
		return call{verb: remove, key: c.key}
	case n < 63:
		c.verb, c.expect = swap, w.mods[c.key]
		return c
	case n < 80:
		c.lease = 0
	}
	c.verb = put
	return c
}

// workTTL is short, so that leases expire while the faults last; half of them
// are renewed in time.
const workTTL = 3 * time.Second

// do makes the call.
func (w *worker) do(ctx context.Context, c call) (answer, error) {
	switch c.verb {
	case put:
		r, err := w.c.Put(ctx, c.key, c.value, clientv3.WithLease(clientv3.LeaseID(c.lease)))
		return answered((*pb.PutResponse)(r), err)
	case remove:
		r, err := w.c.Delete(ctx, c.key)
		a, err := answered((*pb.DeleteRangeResponse)(r), err)
		if err == nil && r.Deleted == 0 {
			a.outcome = differed // and its revision is another's, that of an expiry perhaps
		}
		return a, err
	case get:
		return w.get(ctx, c)
	case swap:
		return w.swap(ctx, c)
	case grant:
		r, err := pb.NewLeaseClient(w.c.ActiveConnection()).LeaseGrant(ctx,
			&pb.LeaseGrantRequest{ID: c.lease, TTL: int64(c.ttl / time.Second)})
		return answered(r, err)
	case revoke:
		r, err := w.c.Revoke(ctx, clientv3.LeaseID(c.lease))
		return answered((*pb.LeaseRevokeResponse)(r), err)
	case keepAlive:
		r, err := w.c.KeepAliveOnce(ctx, clientv3.LeaseID(c.lease))
		return answered((*keepAliveAnswer)(r), err)
	}
	panic("no such call: " + string(c.verb))
}

// A keepAliveAnswer has its header as the other answers have.
type keepAliveAnswer clientv3.LeaseKeepAliveResponse

// GetHeader returns the header of the answer.
func (a *keepAliveAnswer) GetHeader() *pb.ResponseHeader { return a.ResponseHeader }

func answered(r interface{ GetHeader() *pb.ResponseHeader }, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	return answer{outcome: done, revision: r.GetHeader().GetRevision()}, nil
}

func (w *worker) get(ctx context.Context, c call) (answer, error) {
	r, err := w.c.Get(ctx, c.key)
	if err != nil {
		return answer{}, err
	}
	a := answer{outcome: done, revision: r.Header.Revision}
	for _, kv := range r.Kvs {
		a.pair = record{
			string(kv.Value), kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease,
		}
	}
	return a, nil
}

func (w *worker) swap(ctx context.Context, c call) (answer, error) {
	r, err := w.c.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(c.key), "=", c.expect)).
		Then(clientv3.OpPut(c.key, c.value, clientv3.WithLease(clientv3.LeaseID(c.lease)))).
		Commit()
	a, err := answered((*pb.TxnResponse)(r), err)
	if err == nil && !r.Succeeded {
		a.outcome = differed
	}
	return a, err
}

// learn remembers what the next calls are chosen from.
func (w *worker) learn(c call, a answer) {
	switch {
	case c.verb == grant && a.outcome == done:
		w.leases = append(w.leases, c.lease)
	case c.verb == revoke || a.outcome == refused:
		for i, id := range w.leases {
			if id == c.lease {
				w.leases = append(w.leases[:i], w.leases[i+1:]...)
				break
			}
		}
	case c.verb == get && a.outcome == done:
		w.mods[c.key] = a.pair.mod
	case (c.verb == put || c.verb == swap) && a.outcome == done:
		w.mods[c.key] = a.revision
	}
}
