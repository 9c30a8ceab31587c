package lock

import (
	"context"
	"time"
)

// Semaphore has a number of permits, and lets that many hold it at one time. It serves
// waiters in the order in which they came. A session may hold several. Its methods may be
// called from any goroutine.
//
// All users of a name must give the same number of permits; the cluster does not know it.
// Give a semaphore a name that no mutex has.
type Semaphore struct {
	queue waitQueue
	name  string
}

// Semaphore returns the semaphore of a name. It does nothing yet. It panics if there is
// not at least one permit.
func (s *Session) Semaphore(name string, permits int) *Semaphore {
	if permits < 1 {
		panic("lock: a semaphore without permits")
	}
	return &Semaphore{waitQueue{session: s, prefix: name + "/", permits: permits, many: true}, name}
}

// Acquire waits until the session holds one of the permits, as [Mutex.Lock] does. The token
// is larger than those of all earlier holders, some of which may still hold another permit.
func (s *Semaphore) Acquire(ctx context.Context) (*Held, error) { return s.queue.lock(ctx, s.name) }

// AcquireWithin is like Acquire, but waits for other holders no longer than wait: see
// [Mutex.LockWithin].
func (s *Semaphore) AcquireWithin(ctx context.Context, wait time.Duration) (*Held, error) {
	return s.queue.lockWithin(ctx, s.name, wait)
}

// TryAcquire is like Acquire, but does not wait for other holders.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Held, error) {
	return s.queue.tryLock(ctx, s.name)
}
