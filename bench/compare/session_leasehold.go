package compare

import (
	"context"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
)

// leaseholdSession uses leasehold.v1 over its stream.
type leaseholdSession struct{ c *client.Client }

// OpenLeasehold opens a session with a leasehold server.
func OpenLeasehold(endpoints []string) (Session, error) {
	c, err := client.New(client.Config{Endpoints: endpoints})
	if err != nil {
		return nil, err
	}
	return leaseholdSession{c}, nil
}

// Put implements Session.
func (s leaseholdSession) Put(ctx context.Context, key string, value []byte) error {
	_, err := s.c.Put(ctx, store.Put{Key: key, Value: value})
	return err
}

// Get implements Session.
func (s leaseholdSession) Get(ctx context.Context, key string) error {
	_, err := s.c.Get(ctx, key)
	return err
}

// leaseholdLocker has its own lease, like etcdLocker.
type leaseholdLocker struct {
	mutex *lock.Mutex
	held  *lock.Held
}

// Locker implements Session.
func (s leaseholdSession) Locker(ctx context.Context, name string) (Locker, error) {
	l, err := s.c.Grant(ctx, client.Grant{TTL: time.Minute})
	if err != nil {
		return nil, err
	}
	return &leaseholdLocker{mutex: lock.NewMutex(l.Session(), name)}, nil
}

// Lock implements Locker.
func (l *leaseholdLocker) Lock(ctx context.Context) (err error) {
	l.held, err = l.mutex.Lock(ctx)
	return err
}

// Unlock implements Locker.
func (l *leaseholdLocker) Unlock(ctx context.Context) error { return l.held.Release(ctx) }

// Close implements Session.
func (s leaseholdSession) Close() error { return s.c.Close() }
