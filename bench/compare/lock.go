package compare

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/load"
)

// A lockers function creates a caller's Locker for the named lock.
type lockers func(ctx context.Context, e *Env, caller int, name string) (Locker, error)

// lockCycles measures n callers that each lock and unlock an uncontended lock.
func lockCycles(n int, by lockers) func(context.Context, *Env) (Result, error) {
	return inLoop(n, func(ctx context.Context, e *Env) (load.Op, error) {
		list := make([]Locker, n)
		for i := range list {
			var err error
			if list[i], err = by(ctx, e, i, fmt.Sprintf("lock/%d", i)); err != nil {
				return nil, err
			}
		}
		return func(ctx context.Context, caller, _ int) error {
			if err := list[caller].Lock(ctx); err != nil {
				return err
			}
			return list[caller].Unlock(ctx)
		}, nil
	})
}

// handover measures a lock for which 16 callers compete.
func handover(by lockers) func(context.Context, *Env) (Result, error) {
	return func(ctx context.Context, e *Env) (Result, error) {
		const waiters = 16
		h := handing{list: make([]Locker, waiters), base: time.Now()}
		for i := range h.list {
			var err error
			if h.list[i], err = by(ctx, e, i, "handover"); err != nil {
				return Result{}, err
			}
		}
		var cold load.Histogram
		before := max(warmUp, e.Server.Target.WarmUp)
		if err := h.run(ctx, before, &cold); err != nil {
			return Result{}, err
		}
		var m measure
		err := m.during(e.Server, func() error { return h.run(ctx, e.Duration, &m.hist) })
		return m.result(), err
	}
}

// handing passes a lock from holder to holder. It measures how long the lock is not held, from just
// before a holder sends its unlock until the next holder receives its answer.
type handing struct {
	list     []Locker
	base     time.Time
	released atomic.Int64 // when the last unlock was sent, relative to base; 0 at first
	holders  atomic.Int32
}

func (h *handing) run(ctx context.Context, d time.Duration, hist *load.Histogram) error {
	deadline := time.Now().Add(d)
	h.released.Store(0)
	return load.Parallel(len(h.list), func(c int, mine *load.Histogram) error {
		for time.Now().Before(deadline) {
			if err := h.list[c].Lock(ctx); err != nil {
				return err
			}
			got := time.Since(h.base)
			if h.holders.Add(1) != 1 {
				return errors.New("bench: two callers hold one lock")
			}
			if at := h.released.Load(); at != 0 {
				mine.Add(got - time.Duration(at))
			}
			h.holders.Add(-1)
			h.released.Store(int64(time.Since(h.base)))
			if err := h.list[c].Unlock(ctx); err != nil {
				return err
			}
		}
		return nil
	}, hist)
}

// bySession uses the locks of the server's own client. The callers share the sessions.
func bySession(ctx context.Context, e *Env, caller int, name string) (Locker, error) {
	return e.Sessions[caller%len(e.Sessions)].Locker(ctx, name)
}

// byService uses etcd's lock service.
func byService(ctx context.Context, e *Env, caller int, name string) (Locker, error) {
	lease, err := e.grant(ctx, caller, longTTL)
	service := v3lockpb.NewLockClient(e.Client.Conn(caller))
	return &served{service: service, name: []byte(name), lease: lease}, err
}

// served is a lock that uses etcd's lock service.
type served struct {
	service v3lockpb.LockClient
	name    []byte
	lease   int64
	key     []byte // set while the lock is held
}

// Lock implements Locker.
func (s *served) Lock(ctx context.Context) error {
	r, err := s.service.Lock(ctx, &v3lockpb.LockRequest{Name: s.name, Lease: s.lease})
	s.key = r.GetKey()
	return err
}

// Unlock implements Locker.
func (s *served) Unlock(ctx context.Context) error {
	_, err := s.service.Unlock(ctx, &v3lockpb.UnlockRequest{Key: s.key})
	return err
}
