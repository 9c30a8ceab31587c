package lock

import (
	"context"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/internal/fault"
)

// Mutex is a named lock held by one session at a time. A Mutex and an etcd concurrency.Mutex
// exclude each other if they use the same store and the etcd mutex's prefix is this mutex's name.
// Its methods are safe for concurrent use.
type Mutex struct {
	queue waitQueue
	name  string
}

// NewMutex returns the mutex with the given name. It sends no request. Names with a common prefix,
// such as "a" and "a/b", are independent.
func NewMutex(s *client.Session, name string) *Mutex {
	return &Mutex{waitQueue{session: of(s), prefix: name + "/"}, name}
}

// Lock waits until the session holds the lock. It fails promptly if the session's lease ends, or if
// a client deletes the session's key in the wait queue (T16). If the context ends first, Lock
// leaves the queue. It returns ErrInUse if the session already holds the lock or is waiting for it.
func (m *Mutex) Lock(ctx context.Context) (*Held, error) {
	return m.queue.lock(ctx, m.name)
}

// LockWithin is like Lock, but waits at most the given time for other holders and then returns
// ErrLocked. If wait is 0, it does not wait for them at all. The time that the cluster takes to
// answer is limited only by the context.
func (m *Mutex) LockWithin(ctx context.Context, wait time.Duration) (*Held, error) {
	return m.queue.lockWithin(ctx, m.name, wait)
}

// TryLock is like Lock, but returns ErrLocked immediately if another session holds the lock.
func (m *Mutex) TryLock(ctx context.Context) (*Held, error) {
	return m.queue.tryLock(ctx, m.name)
}

// Do acquires the lock, runs f, and releases the lock. The context passed to f is canceled when ctx
// or the lock ends. f must then return. Do returns the error from Lock or from f. If the lock was
// lost before f returned, the error includes the reason. f can release the lock itself, using its
// context; that is not an error.
func (m *Mutex) Do(
	ctx context.Context, f func(ctx context.Context, held *Held) error,
) error {
	held, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	err, lost := held.run(ctx, func(ctx context.Context) error { return f(ctx, held) })
	return fault.Join(err, lost)
}
