package lock

import (
	"context"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
)

// RWMutex is a lock that can be held by any number of readers or by a single writer. All of them
// wait in one queue, so neither side starves: a reader waits for the writers ahead of it, and a
// writer waits for all readers and writers ahead of it. Readers between two writers share the lock.
// A [Mutex] or an etcd mutex with the same name counts as a writer. Its methods are safe for
// concurrent use.
//
// A session can hold many read locks at a time, or one write lock. A lock cannot be upgraded or
// downgraded: if a session holds or waits for one kind of lock, a request for the other returns
// ErrInUse.
type RWMutex struct {
	read, write waitQueue
	name        string
}

// reader is the value of a reader's key. A key with any other value belongs to a writer.
const reader = "r"

// NewRWMutex returns the read/write lock with the given name. It sends no request.
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

// LockWithin is like Lock, but waits at most the given time for other holders. See
// [Mutex.LockWithin].
func (m *RWMutex) LockWithin(ctx context.Context, wait time.Duration) (*Held, error) {
	return m.write.lockWithin(ctx, m.name, wait)
}

// TryLock is like Lock, but does not wait for other holders.
func (m *RWMutex) TryLock(ctx context.Context) (*Held, error) {
	return m.write.tryLock(ctx, m.name)
}

// RLock waits until the session holds the lock for reading. Other readers may hold it as well.
func (m *RWMutex) RLock(ctx context.Context) (*Held, error) { return m.read.lock(ctx, m.name) }

// RLockWithin is like RLock, but waits at most the given time for writers.
func (m *RWMutex) RLockWithin(ctx context.Context, wait time.Duration) (*Held, error) {
	return m.read.lockWithin(ctx, m.name, wait)
}

// TryRLock is like RLock, but does not wait for writers that hold the lock or are waiting for it.
func (m *RWMutex) TryRLock(ctx context.Context) (*Held, error) {
	return m.read.tryLock(ctx, m.name)
}
