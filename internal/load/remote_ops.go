package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// grant grants a lease and records it for sweep. It does not cancel the call when ctx ends, because
// the server might then grant a lease that sweep does not know about.
func (r *Remote) grant(
	ctx context.Context, caller int, ttl int64,
) (*pb.LeaseGrantResponse, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hopeless)
	defer cancel()
	g, err := r.Client.Lease(caller).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: ttl})
	if err != nil {
		return nil, err
	}
	if ttl == remoteTTL {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.leases = append(r.leases, g.ID)
	}
	return g, nil
}

func (r *Remote) grants(ctx context.Context, t *tally) error {
	return r.loop(ctx, t, func(ctx context.Context, caller, _ int) error {
		_, err := r.grant(ctx, caller, remoteTTL)
		return err
	})
}

// enoughLeases returns the leases to work with. If there are too few, it grants more.
func (r *Remote) enoughLeases(ctx context.Context) ([]int64, error) {
	r.mu.Lock()
	missing := fewLeases - len(r.leases)
	r.mu.Unlock()
	if missing > 0 {
		err := Spread(ctx, min(missing, 64), missing, func(ctx context.Context, caller, _ int) error {
			_, err := r.grant(ctx, caller, remoteTTL)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leases[:fewLeases:fewLeases], nil
}

// puts overwrites fewLeases keys, each of which is attached to a lease.
func (r *Remote) puts(ctx context.Context, t *tally) error {
	leases, err := r.enoughLeases(ctx)
	if err != nil {
		return err
	}
	return r.loop(ctx, t, func(ctx context.Context, caller, i int) error {
		return r.put(ctx, caller, i, leases)
	})
}

func (r *Remote) put(ctx context.Context, caller, i int, leases []int64) error {
	k := i % len(leases)
	_, err := r.Client.KV(caller).Put(ctx, &pb.PutRequest{
		Key: NumberedKey(r.prefix, k), Value: make([]byte, ValueSize), Lease: leases[k],
	})
	return err
}

// reads makes linearizable reads of a single key.
func (r *Remote) reads(ctx context.Context, t *tally) error {
	leases, err := r.enoughLeases(ctx)
	if err != nil {
		return err
	}
	err = Spread(ctx, 64, len(leases), func(ctx context.Context, caller, i int) error {
		return r.put(ctx, caller, i, leases)
	})
	if err != nil {
		return err
	}
	return r.loop(ctx, t, func(ctx context.Context, caller, i int) error {
		a, err := r.Client.KV(caller).Range(ctx, &pb.RangeRequest{
			Key: NumberedKey(r.prefix, i%len(leases)),
		})
		if err == nil && len(a.Kvs) != 1 {
			err = fmt.Errorf("bench: got %d pairs for a key that exists", len(a.Kvs))
		}
		return err
	})
}

// renewals saturates streams. Each stream has its own leases, which outnumber its requests in
// flight.
func (r *Remote) renewals(ctx context.Context, t *tally) error {
	leases, err := r.enoughLeases(ctx)
	if err != nil {
		return err
	}
	streams := min(r.Callers, RenewStreams, r.Count)
	return r.measured(ctx, t, func() error {
		began := time.Now()
		return Parallel(streams, func(caller int, mine *Histogram) error {
			share, most := len(leases)/streams, r.Count/streams
			s := Renewer{Leases: leases[caller*share:][:share], Hist: mine}
			more := func(i int) bool {
				took := time.Since(began)
				if caller == 0 && i%64 == 0 {
					r.progress(t.name, max(float64(i)/float64(most), float64(took)/float64(r.Duration)))
				}
				return i < most && took < r.Duration
			}
			return s.Run(ctx, r.Client.Lease(caller), more)
		}, &t.hist)
	})
}

// expiries grants leases with one key each, lets them expire, and measures how late each key is
// deleted.
func (r *Remote) expiries(ctx context.Context, t *tally) error {
	n := min(r.Count, 2000)
	prefix := append(append([]byte{}, r.prefix...), "end/"...)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gone, err := WatchDeletions(ctx, r.Client.Watch(0), prefix, n)
	if err != nil {
		return err
	}
	var followed error
	var wg sync.WaitGroup
	wg.Go(func() { followed = gone.Follow() })
	sent, ttl := make([]time.Time, n), time.Duration(0)
	err = r.measured(ctx, t, func() error {
		if ttl, err = r.grantEnding(ctx, prefix, sent); err != nil {
			return err
		}
		return r.await(ctx, gone, n, ttl)
	})
	cancel()
	wg.Wait()
	if err != nil {
		return errors.Join(err, lost(followed))
	}
	return gone.Lateness(&t.hist, sent, ttl)
}

// grantEnding grants leases that will not be renewed. It returns their TTL, which the server might
// have increased.
func (r *Remote) grantEnding(
	ctx context.Context, prefix []byte, sent []time.Time,
) (time.Duration, error) {
	var mu sync.Mutex
	ttl := time.Duration(0)
	err := Spread(ctx, min(len(sent), 64), len(sent), func(ctx context.Context, caller, i int) error {
		sent[i] = time.Now()
		g, err := r.grant(ctx, caller, expiring)
		if err != nil {
			return err
		}
		mu.Lock()
		ttl = time.Duration(g.TTL) * time.Second
		mu.Unlock()
		_, err = r.Client.KV(caller).Put(ctx, &pb.PutRequest{
			Key: NumberedKey(prefix, i), Value: make([]byte, ValueSize), Lease: g.ID,
		})
		return err
	})
	return ttl, err
}

// await waits until all keys have been deleted.
func (r *Remote) await(ctx context.Context, gone *Deletions, n int, ttl time.Duration) error {
	began := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-gone.All():
			return nil
		case <-tick.C:
			r.progress("expire", float64(time.Since(began))/float64(ttl+time.Second))
		case <-ctx.Done():
			return fmt.Errorf("%d of %d leases that should have ended are still there: %w",
				gone.Left(), n, context.Cause(ctx))
		}
	}
}

// lost returns err, or nil if err comes from canceling our own watch.
func lost(err error) error {
	if isCancelled(err) {
		return nil
	}
	return err
}
