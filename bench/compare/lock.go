package compare

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/load"
)

// runHandover measures a lock of etcd's lock service for which 16 callers compete.
func runHandover(ctx context.Context, e *Env) (Result, error) {
	const waiters = 16
	h := handing{list: make([]*serviceLock, waiters), base: time.Now()}
	for i := range h.list {
		var err error
		if h.list[i], err = e.serviceLock(ctx, i, "handover"); err != nil {
			return Result{}, err
		}
	}
	var cold load.Histogram
	if err := h.run(ctx, warmUp, &cold); err != nil {
		return Result{}, err
	}
	var m measure
	err := m.during(e.Server, func() error { return h.run(ctx, e.Duration, &m.hist) })
	return m.result(), err
}

// handing passes a lock from holder to holder. It measures how long the lock is not held, from just
// before a holder sends its unlock until the next holder receives its answer.
type handing struct {
	list     []*serviceLock
	base     time.Time
	released atomic.Int64 // when the last unlock was sent, relative to base; 0 at first
	holders  atomic.Int32
}

func (h *handing) run(ctx context.Context, d time.Duration, hist *load.Histogram) error {
	deadline := time.Now().Add(d)
	h.released.Store(0)
	return load.Parallel(len(h.list), func(c int, mine *load.Histogram) error {
		for time.Now().Before(deadline) {
			if err := h.list[c].lock(ctx); err != nil {
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
			if err := h.list[c].unlock(ctx); err != nil {
				return err
			}
		}
		return nil
	}, hist)
}

// serviceLock is a lock that uses etcd's lock service.
type serviceLock struct {
	service v3lockpb.LockClient
	name    []byte
	lease   int64
	key     []byte // set while the lock is held
}

// serviceLock returns a caller's own serviceLock for the named lock.
func (e *Env) serviceLock(ctx context.Context, caller int, name string) (*serviceLock, error) {
	lease, err := e.grant(ctx, caller, longTTL)
	service := v3lockpb.NewLockClient(e.Client.Conn(caller))
	return &serviceLock{service: service, name: []byte(name), lease: lease}, err
}

func (s *serviceLock) lock(ctx context.Context) error {
	r, err := s.service.Lock(ctx, &v3lockpb.LockRequest{Name: s.name, Lease: s.lease})
	s.key = r.GetKey()
	return err
}

func (s *serviceLock) unlock(ctx context.Context) error {
	_, err := s.service.Unlock(ctx, &v3lockpb.UnlockRequest{Key: s.key})
	return err
}
