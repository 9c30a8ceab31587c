package lock

import (
	"context"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/internal/fault"
)

// Mutex is a named lock, held by one session at a time. It and etcd's concurrency.Mutex, with the
// name as its prefix, exclude each other on the same store. Its methods may be called from any
// goroutine.
type Mutex struct {
	queue waitQueue
	name  string
}

// NewMutex returns the mutex with the given name. It sends nothing. Names with a common prefix,
// such as "a" and "a/b", are independent.
func NewMutex(s *client.Session, name string) *Mutex {
	return &Mutex{waitQueue{session: of(s), prefix: name + "/"}, name}
}

// Lock waits until the session holds the lock. It fails promptly if the session's lease ends, or if
// a client deletes the key in the wait queue (T16). If the context ends first, Lock leaves the
// queue. ErrInUse means that the session already has the lock, or is waiting for it.
func (m *Mutex) Lock(ctx context.Context) (*Held, error) {
	return m.queue.lock(ctx, m.name)
}

// LockWithin is like Lock, but waits at most the given time for other holders, and then returns
// ErrLocked. With 0, it does not wait for holders. Only the context limits the time that the
// cluster may take to answer.
func (m *Mutex) LockWithin(ctx context.Context, wait time.Duration) (*Held, error) {
	return m.queue.lockWithin(ctx, m.name, wait)
}

// TryLock is like Lock, but returns ErrLocked immediately if another session holds the lock.
func (m *Mutex) TryLock(ctx context.Context) (*Held, error) {
	return m.queue.tryLock(ctx, m.name)
}

// Do locks, runs f, and releases the lock. The context of f ends with the caller's, and when the
// lock ends; f must return then. Do returns the error of Lock, or the error of f and, if the lock
// was not held until f returned, the reason. f may release the lock using its context; that is not
// an error.
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
