package lock

import (
	"context"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
)

// RWMutex is a lock that any number of readers can share, or a single writer can hold. All wait in
// one queue, so neither side starves: a reader waits for the writers before it, and a writer for
// all readers and writers before it. Readers between two writers share the lock. A [Mutex] of the
// same name, ours or etcd's, counts as a writer. Its methods may be called from any goroutine.
//
// A session may hold many read locks at a time, or one write lock. A lock cannot be upgraded or
// downgraded: a session that holds or waits for one kind gets ErrInUse if it requests the other.
type RWMutex struct {
	read, write waitQueue
	name        string
}

// reader is the value of a reader's key. Keys with any other value are writers.
const reader = "r"

// NewRWMutex returns the read/write lock with the given name. It sends nothing.
func NewRWMutex(live *client.Session, name string) *RWMutex {
	s, prefix := of(live), name+"/"
	own := s.key(prefix)
	write := waitQueue{session: s, prefix: prefix, own: store.Prefix(own + ".")}
	read := waitQueue{
		session: s, prefix: prefix, value: []byte(reader), skip: []byte(reader), multiple: true,
		own: store.Key(own),
	}
	return &RWMutex{read: read, write: write, name: name}
}

// Lock waits until the session holds the lock for writing, like [Mutex.Lock].
func (m *RWMutex) Lock(ctx context.Context) (*Held, error) { return m.write.lock(ctx, m.name) }

// LockWithin is like Lock, but waits at most the given time for other holders: see
// [Mutex.LockWithin].
func (m *RWMutex) LockWithin(ctx context.Context, wait time.Duration) (*Held, error) {
	return m.write.lockWithin(ctx, m.name, wait)
}

// TryLock is like Lock, but does not wait for other holders.
func (m *RWMutex) TryLock(ctx context.Context) (*Held, error) {
	return m.write.tryLock(ctx, m.name)
}

// RLock waits until the session holds the lock for reading, possibly along with others.
func (m *RWMutex) RLock(ctx context.Context) (*Held, error) { return m.read.lock(ctx, m.name) }

// RLockWithin is like RLock, but waits at most the given time for writers.
func (m *RWMutex) RLockWithin(ctx context.Context, wait time.Duration) (*Held, error) {
	return m.read.lockWithin(ctx, m.name, wait)
}

// TryRLock is like RLock, but does not wait for writers that hold the lock or wait for it.
func (m *RWMutex) TryRLock(ctx context.Context) (*Held, error) {
	return m.read.tryLock(ctx, m.name)
}
