package compare

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// keptLeases is the number of leases that the Go client keeps alive during all faults.
	keptLeases = 8
	// shortTTL is the TTL, in seconds, of leases that may be lost because of faults.
	shortTTL = 5
)

// Like a typical program, a keeper keeps leases alive with the Go client's KeepAlive. It records
// the outcome.
type keeper struct {
	client *clientv3.Client
	leases []*keptLease
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// A keptLease is owned by its goroutine until the keeper has finished.
type keptLease struct {
	id      clientv3.LeaseID
	lost    bool
	longest time.Duration // longest time between two renewals
}

// keepAlive grants leases with one key each and keeps them alive until finish is called.
func keepAlive(ctx context.Context, c *clientv3.Client) (*keeper, error) {
	kctx, cancel := context.WithCancel(ctx)
	k := &keeper{client: c, cancel: cancel}
	for range keptLeases {
		if err := k.add(kctx); err != nil {
			cancel()
			k.wg.Wait()
			return nil, err
		}
	}
	return k, nil
}

func (k *keeper) add(ctx context.Context) error {
	g, err := k.client.Grant(ctx, shortTTL)
	if err != nil {
		return err
	}
	_, err = k.client.Put(ctx, keptKey(g.ID), "held", clientv3.WithLease(g.ID))
	if err != nil {
		return err
	}
	renewed, err := k.client.KeepAlive(ctx, g.ID)
	if err != nil {
		return err
	}
	l := &keptLease{id: g.ID}
	k.leases = append(k.leases, l)
	k.wg.Go(func() { l.follow(ctx, renewed) })
	return nil
}

func keptKey(id clientv3.LeaseID) string { return fmt.Sprintf("kept/%016x", int64(id)) }

// follow records renewals until the keeper finishes or the client closes the channel. A closed
// channel means that the lease is lost.
func (l *keptLease) follow(ctx context.Context, renewed <-chan *clientv3.LeaseKeepAliveResponse) {
	last := time.Now()
	for range renewed {
		now := time.Now()
		l.longest = max(l.longest, now.Sub(last))
		last = now
	}
	l.lost = ctx.Err() == nil
}

// finish reads each lease and its key from the server while the leases are still kept alive, and
// then releases the leases. It counts the leases lost by the client or the server.
func (k *keeper) finish(ctx context.Context) (lost int, err error) {
	gone := make([]bool, len(k.leases))
	for i, l := range k.leases {
		if gone[i], err = k.gone(ctx, l.id); err != nil {
			break
		}
	}
	k.cancel()
	k.wg.Wait()
	for i, l := range k.leases {
		if l.lost || gone[i] {
			lost++
		}
	}
	return lost, err
}

func (k *keeper) gone(ctx context.Context, id clientv3.LeaseID) (bool, error) {
	ttl, err := k.client.TimeToLive(ctx, id)
	if err != nil {
		return false, err
	}
	kv, err := k.client.Get(ctx, keptKey(id))
	if err != nil {
		return false, err
	}
	return ttl.TTL <= 0 || len(kv.Kvs) != 1, nil
}

// longest returns the longest time that any lease went without a renewal. It must only be called
// after finish.
func (k *keeper) longest() time.Duration {
	var d time.Duration
	for _, l := range k.leases {
		d = max(d, l.longest)
	}
	return d
}

// callers make calls with the Go client in a loop, so that some calls are in flight when the leader
// dies.
type callers struct {
	killed   atomic.Pointer[time.Time]
	stopping chan struct{}
	wg       sync.WaitGroup
	mu       sync.Mutex
	hangs    sample // guarded by mu
}

// startCallers starts four callers that write and four that renew. They pause between calls, so
// that they take little CPU time from the measurement.
func (f *failover) startCallers(ctx context.Context) *callers {
	c := &callers{stopping: make(chan struct{})}
	for range 4 {
		c.wg.Go(func() { c.loop(ctx, f.userPut) })
		c.wg.Go(func() { c.loop(ctx, f.userKeepAlive) })
	}
	return c
}

func (c *callers) loop(ctx context.Context, call try) {
	breath := time.NewTicker(2 * time.Millisecond)
	defer breath.Stop()
	for {
		c.once(ctx, call)
		select {
		case <-c.stopping:
			return
		case <-ctx.Done():
			return
		case <-breath.C:
		}
	}
}

// once makes a call. If the leader died during the call, once records the call's duration, even if
// the call failed. What matters is how long callers hang.
func (c *callers) once(ctx context.Context, call try) {
	ctx, cancel := context.WithTimeout(ctx, userLimit)
	defer cancel()
	began := time.Now()
	_, _ = call(ctx)
	took := time.Since(began)
	if at := c.killed.Load(); at != nil && began.Before(*at) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hangs = append(c.hangs, took)
	}
}

// mark records when the leader was killed.
func (c *callers) mark(at time.Time) { c.killed.Store(&at) }

// stop waits for the calls still in flight, and returns the durations of the calls that were in
// flight at the kill.
func (c *callers) stop() sample {
	close(c.stopping)
	c.wg.Wait()
	return c.hangs
}
