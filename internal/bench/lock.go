package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/api/etcd/v3lockpb"
)

// A lockers makes a caller's own way to the lock with a name.
type lockers func(ctx context.Context, e *Env, caller int, name string) (Locker, error)

// lockCycles locks and unlocks n locks that nobody else wants, a caller each.
func lockCycles(n int, by lockers) func(context.Context, *Env) (Result, error) {
	return inLoop(n, func(ctx context.Context, e *Env) (op, error) {
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

// handover lets 16 callers want one lock.
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
		var cold Histogram
		before := max(warmUp, e.Server.Target.WarmUp)
		if err := h.run(ctx, before, &cold); err != nil {
			return Result{}, err
		}
		var m measure
		err := m.during(e.Server, func() error { return h.run(ctx, e.Duration, &m.hist) })
		return m.result(), err
	}
}

// handing hands a lock round. What counts is the time in which nobody holds it: from just
// before a holder sends its unlock until the next one has its answer.
type handing struct {
	list     []Locker
	base     time.Time
	released atomic.Int64 // when the last unlock was sent, since base; 0 at first
	holders  atomic.Int32
}

func (h *handing) run(ctx context.Context, d time.Duration, hist *Histogram) error {
	deadline := time.Now().Add(d)
	h.released.Store(0)
	return parallel(len(h.list), func(c int, mine *Histogram) error {
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

// bySession locks with the server's own client. Callers share the sessions.
func bySession(ctx context.Context, e *Env, caller int, name string) (Locker, error) {
	return e.Sessions[caller%len(e.Sessions)].Locker(ctx, name)
}

// byService locks with etcd's lock service.
func byService(ctx context.Context, e *Env, caller int, name string) (Locker, error) {
	lease, err := e.grant(ctx, caller, longTTL)
	return &served{env: e, caller: caller, name: []byte(name), lease: lease}, err
}

// served is a lock of the lock service.
type served struct {
	env    *Env
	caller int
	name   []byte
	lease  int64
	key    []byte
}

// Lock implements Locker.
func (s *served) Lock(ctx context.Context) (err error) {
	s.key, err = s.env.lock(ctx, s.caller, s.name, s.lease)
	return err
}

// Unlock implements Locker.
func (s *served) Unlock(ctx context.Context) error {
	return s.env.unlock(ctx, s.caller, s.key)
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
