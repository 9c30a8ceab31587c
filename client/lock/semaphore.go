package lock

import (
	"context"
	"time"
)

// Semaphore lets so many hold it at one time as it has permits. Who comes first is served
// first. A session may hold several. Its methods may be called from any goroutine.
//
// All who use a name say the same number of permits; the cluster does not know it. Give a
// semaphore a name that no mutex has.
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
// is larger than that of everybody who came before, and may hold another permit still.
func (s *Semaphore) Acquire(ctx context.Context) (*Held, error) { return s.queue.lock(ctx, s.name) }

// AcquireWithin is Acquire for who waits for others no longer than a time: see
// [Mutex.LockWithin].
func (s *Semaphore) AcquireWithin(ctx context.Context, wait time.Duration) (*Held, error) {
	return s.queue.lockWithin(ctx, s.name, wait)
}

// TryAcquire is Acquire for who does not wait for others.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Held, error) {
	return s.queue.tryLock(ctx, s.name)
}
