package lock

import (
	"context"
	"time"
)

// Mutex is a lock that one session at a time holds, by its name. It and etcd's
// concurrency.Mutex, with the name as prefix, exclude each other on the same store. Its
// methods may be called from any goroutine.
type Mutex struct {
	queue waitQueue
	name  string
}

// Mutex returns the mutex of a name. It does nothing yet. Names that begin with each
// other, as "a" and "a/b", do not touch each other.
func (s *Session) Mutex(name string) *Mutex {
	return &Mutex{waitQueue{session: s, prefix: name + "/"}, name}
}

// Lock waits until the session holds the lock. It returns at once when the session's lease
// ends meanwhile, or somebody deletes the key by which it waits (T16), and then the error says
// so. If the context ends first, the ticket is given up, by itself. ErrInUse says
// that the session has the lock, or waits for it, already.
func (m *Mutex) Lock(ctx context.Context) (*Held, error) {
	return m.queue.lock(ctx, m.name)
}

// LockWithin is like Lock, but waits for other holders no longer than wait; the error is then
// ErrLocked. With 0 it waits for no holder. The context alone bounds how long the cluster may
// take to answer.
func (m *Mutex) LockWithin(ctx context.Context, wait time.Duration) (*Held, error) {
	return m.queue.lockWithin(ctx, m.name, wait)
}

// TryLock is like Lock, but returns ErrLocked at once if another session holds the lock.
func (m *Mutex) TryLock(ctx context.Context) (*Held, error) {
	return m.queue.tryLock(ctx, m.name)
}

// Do locks, runs f, and gives the lock up. The context that f has ends with the caller's, and when
// the lock does; f must return then. The error is that of the lock, or that of f and, if the lock
// was not held up to the end, the reason, unless f gave it up, for which it may use that context.
func (m *Mutex) Do(
	ctx context.Context, f func(ctx context.Context, held *Held) error,
) error {
	held, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return held.run(ctx, f)
}
