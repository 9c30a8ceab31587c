package lock

import (
	"context"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/internal/fault"
)

// Lock locks the mutex of a name without a session. It grants a lease with this TTL for this lock
// alone. The client keeps the lease alive as long as the lock is held: the lock never ends while
// the process and its client live and reach the cluster, and ends after the TTL when they do not
// (T18). Release revokes the lease. A program that locks often should make one session, since a
// grant costs as much as a lock.
func Lock(
	ctx context.Context, c *client.Client, name string, ttl time.Duration,
) (*Held, error) {
	return alone(ctx, c, name, ttl, (*Mutex).Lock)
}

// TryLock is like Lock, but returns ErrLocked at once if another session holds the lock.
func TryLock(
	ctx context.Context, c *client.Client, name string, ttl time.Duration,
) (*Held, error) {
	return alone(ctx, c, name, ttl, (*Mutex).TryLock)
}

func alone(
	ctx context.Context, c *client.Client, name string, ttl time.Duration,
	lock func(*Mutex, context.Context) (*Held, error),
) (*Held, error) {
	if err := tries.CheckName("lock", name); err != nil {
		return nil, fault.In("lock: acquire", name, err)
	}
	l, err := c.Grant(ctx, client.Grant{TTL: ttl})
	if err != nil {
		return nil, fault.In("lock: acquire", name, err)
	}
	s := NewSession(c, l)
	held, err := lock(s.Mutex(name), ctx)
	if err != nil {
		s.discard(ctx)
		return nil, err
	}
	held.alone = true
	return held, nil
}

// discard revokes the lease of a session that was made for one lock. It does not wait for the
// answer if the lease has already ended: there may be none.
func (s *Session) discard(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.err() != nil {
		cancel()
	}
	_ = s.lease.Revoke(ctx) // if that fails the lease ends after its TTL
}
