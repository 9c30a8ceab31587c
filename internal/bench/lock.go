package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/api/etcd/v3lockpb"
)

// lockCycles locks and unlocks n locks that nobody else wants, a caller each.
func lockCycles(n int) func(context.Context, *Env) (Result, error) {
	return func(ctx context.Context, e *Env) (Result, error) {
		leases, err := e.grantMany(ctx, n, longTTL)
		if err != nil {
			return Result{}, err
		}
		var m measure
		err = m.during(e.Server, func() error {
			return closedLoop(ctx, n, e.Duration, &m.hist, func(ctx context.Context, c, _ int) error {
				name := fmt.Appendf(nil, "lock/%d", c)
				key, err := e.lock(ctx, c, name, leases[c])
				if err != nil {
					return err
				}
				return e.unlock(ctx, c, key)
			})
		})
		return m.result(), err
	}
}

// runHandover lets 16 callers want one lock. What counts is the time in which
// nobody holds it: from just before a holder sends its unlock until the next
// one has its answer.
func runHandover(ctx context.Context, e *Env) (Result, error) {
	const waiters = 16
	leases, err := e.grantMany(ctx, waiters, longTTL)
	if err != nil {
		return Result{}, err
	}
	base := time.Now()
	var released atomic.Int64 // when the last unlock was sent, since base; 0 at first
	var holders atomic.Int32
	var m measure
	err = m.during(e.Server, func() error {
		deadline := base.Add(e.Duration)
		return parallel(waiters, func(c int, mine *Histogram) error {
			for time.Now().Before(deadline) {
				key, err := e.lock(ctx, c, []byte("handover"), leases[c])
				if err != nil {
					return err
				}
				got := time.Since(base)
				if holders.Add(1) != 1 {
					return fmt.Errorf("bench: two callers hold one lock")
				}
				if at := released.Load(); at != 0 {
					mine.Add(got - time.Duration(at))
				}
				holders.Add(-1)
				released.Store(int64(time.Since(base)))
				if err := e.unlock(ctx, c, key); err != nil {
					return err
				}
			}
			return nil
		}, &m.hist)
	})
	return m.result(), err
}

func (e *Env) lock(ctx context.Context, caller int, name []byte, lease int64) ([]byte, error) {
	r, err := e.Client.Lock(caller).Lock(ctx, &v3lockpb.LockRequest{Name: name, Lease: lease})
	if err != nil {
		return nil, err
	}
	return r.Key, nil
}

func (e *Env) unlock(ctx context.Context, caller int, key []byte) error {
	_, err := e.Client.Lock(caller).Unlock(ctx, &v3lockpb.UnlockRequest{Key: key})
	return err
}
