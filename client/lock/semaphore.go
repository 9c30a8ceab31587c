package lock

import (
	"context"
	"time"

	"leasehold.dev/client"
)

// Semaphore has a number of permits that can be held at the same time. It serves waiters in order
// of arrival. A session can hold several permits. Its methods are safe for concurrent use.
//
// The first Acquire stores the number of permits in the key NAME~permits. A program that uses a
// different number gets [client.ErrInvalid]. To change the number, delete the key while no permit
// is held. Do not use the same name for a semaphore and a mutex.
type Semaphore struct {
	queue waitQueue
	name  string
}

// NewSemaphore returns the semaphore with the given name. It sends no request. It panics if permits
// is less than 1.
func NewSemaphore(s *client.Session, name string, permits int) *Semaphore {
	if permits < 1 {
		panic("lock: the semaphore has no permits")
	}
	q := waitQueue{
		session: of(s), prefix: name + "/", permits: permits, multiple: true,
		permitsKey: name + "~permits",
	}
	return &Semaphore{q, name}
}

// Acquire waits until the session holds a permit, like [Mutex.Lock]. The token is larger than the
// tokens of all earlier holders, some of which may still hold other permits.
func (s *Semaphore) Acquire(ctx context.Context) (*Held, error) { return s.queue.lock(ctx, s.name) }

// AcquireWithin is like Acquire, but waits at most the given time for other holders. See
// [Mutex.LockWithin].
func (s *Semaphore) AcquireWithin(ctx context.Context, wait time.Duration) (*Held, error) {
	return s.queue.lockWithin(ctx, s.name, wait)
}

// TryAcquire is like Acquire, but does not wait for other holders.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Held, error) {
	return s.queue.tryLock(ctx, s.name)
}
