package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/history"
)

// A worker uses registers and leases and records the answers.
type worker struct {
	name string
	c    *clientv3.Client
	h    *history.History

	mu   sync.Mutex // guards the following fields
	rng  *rand.Rand
	last int
}

// Name implements history.Program.
func (w *worker) Name() string { return w.name }

// IsDead implements history.Program.
func (*worker) IsDead() bool { return false }

const (
	// workPrefix is the prefix of registers, and leasedPrefix the prefix of keys on leases.
	workPrefix, leasedPrefix = "work/", "leased/"
	// workEpoch is how long a register is used. It is short because the search for a linearization
	// takes longer with more operations.
	workEpoch = 5 * time.Second
	// opPatience is the timeout of a call to a member that may be paused or cut off.
	opPatience = 2 * time.Second
	// workTTL is short, so that leases expire during the faults.
	workTTL = 3 * time.Second
)

// work starts one worker per member and one that is configured with all members. They run until
// stop is called.
func work(t *testing.T, c *cluster, rng *rand.Rand, h *history.History) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	endpoints := [][]*member{c.members}
	for _, m := range c.members {
		endpoints = append(endpoints, []*member{m})
	}
	for i, members := range endpoints {
		w := &worker{
			name: fmt.Sprint("worker", i+1), c: client(t, members...), h: h,
			rng: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())),
		}
		wg.Go(func() { w.run(ctx, 15*time.Millisecond, w.register) })
		wg.Go(func() { w.run(ctx, 50*time.Millisecond, w.lease) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// run calls do at a rate that leaves enough CPU time for the servers.
func (w *worker) run(ctx context.Context, every time.Duration, do func(context.Context)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do(ctx)
		}
	}
}

func (w *worker) intn(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// unique returns a string that no other call returns.
func (w *worker) unique() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	return fmt.Sprint(w.name, "-", w.last)
}

// register performs a random operation on a register.
func (w *worker) register(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	o := &history.Op{
		By: w.name, Key: fmt.Sprintf("%s%d/%d", workPrefix, w.h.Now()/workEpoch, w.intn(5)),
	}
	err := w.operate(ctx, o)
	f := history.Done
	if err != nil {
		// A member without a leader may reject the call although an earlier attempt succeeded.
		f = history.Unknown
	}
	w.h.Return(o, f)
}

func (w *worker) operate(ctx context.Context, o *history.Op) error {
	switch n := w.intn(10); {
	case n < 5:
		w.h.Call(o)
		r, err := w.c.Get(ctx, o.Key)
		o.Got = valueOf(r)
		return err
	case n < 7:
		o.Kind, o.Value = history.Put, w.unique()
		w.h.Call(o)
		r, err := w.c.Put(ctx, o.Key, o.Value)
		if err == nil {
			o.Revision = r.Header.Revision
		}
		return err
	case n < 8:
		o.Kind = history.Delete
		w.h.Call(o)
		_, err := w.c.Delete(ctx, o.Key)
		return err
	default:
		return w.swap(ctx, o)
	}
}

// valueOf returns the value of the only pair in a response, or "" if there is none.
func valueOf(r *clientv3.GetResponse) string {
	if r == nil || len(r.Kvs) == 0 {
		return ""
	}
	return string(r.Kvs[0].Value)
}

// swap reads a register and replaces its value.
func (w *worker) swap(ctx context.Context, o *history.Op) error {
	r, err := w.c.Get(ctx, o.Key)
	if err != nil {
		w.h.Call(o) // record a read without an answer
		return err
	}
	o.Kind, o.Want, o.Value = history.Swap, valueOf(r), w.unique()
	cond := clientv3.Compare(clientv3.Value(o.Key), "=", o.Want)
	if o.Want == "" {
		cond = clientv3.Compare(clientv3.CreateRevision(o.Key), "=", 0)
	}
	w.h.Call(o)
	txn, err := w.c.Txn(ctx).If(cond).Then(clientv3.OpPut(o.Key, o.Value)).
		Else(clientv3.OpGet(o.Key)).Commit()
	if err != nil {
		return err
	}
	if o.Swapped = txn.Succeeded; o.Swapped {
		o.Revision = txn.Header.Revision
	} else {
		o.Got = valueOf((*clientv3.GetResponse)(txn.Responses[0].GetResponseRange()))
	}
	return nil
}

// lease grants a lease with a key, renews it for a while, and revokes or abandons it (L1, L3).
func (w *worker) lease(ctx context.Context) {
	v := newValidity()
	g, err := v.grant(ctx, w.c, workTTL)
	if err != nil {
		return
	}
	putting, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	key := leasedPrefix + w.unique()
	r, err := w.c.Put(putting, key, w.name, clientv3.WithLease(g))
	if err != nil {
		return
	}
	b := w.h.Attach(key, w, r.Header.Revision, v.Err)
	v.hold(ctx, w.c, g, workTTL, now()+time.Duration(w.intn(4))*time.Second)
	if b.Release(); w.intn(2) == 0 {
		return
	}
	ending, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	if _, err := w.c.Revoke(ending, g); err != nil {
		return
	}
	if _, err := w.c.KeepAliveOnce(ending, g); err == nil {
		w.h.Violate("L3", "lease %x was renewed after its revocation was acknowledged", g)
	}
}

// validity is the time until which a holder may rely on a lease according to its own clock, which
// is one TTL after it sent the last acknowledged renewal.
type validity struct {
	mu    sync.Mutex
	until time.Duration
}

func newValidity() *validity { return new(validity) }

var errInvalid = errors.New("the lease may have ended")

// Err returns nil while the lease is valid.
func (v *validity) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now() < v.until {
		return nil
	}
	return errInvalid
}

func (v *validity) renewed(sent, ttl time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until = max(v.until, sent+ttl)
}

func (v *validity) grant(
	ctx context.Context, c *clientv3.Client, ttl time.Duration,
) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	sent := now()
	g, err := c.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return 0, err
	}
	v.renewed(sent, ttl)
	return g.ID, nil
}

// hold keeps the lease alive until end, or until a renewal fails.
func (v *validity) hold(
	ctx context.Context, c *clientv3.Client, id clientv3.LeaseID, ttl, end time.Duration,
) {
	tick := time.NewTicker(ttl / 5)
	defer tick.Stop()
	for now() < end {
		renewing, cancel := context.WithTimeout(ctx, ttl/2)
		sent := now()
		_, err := c.KeepAliveOnce(renewing, id)
		cancel()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) || ctx.Err() != nil {
			return
		}
		if err == nil {
			v.renewed(sent, ttl)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
