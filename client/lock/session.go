package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/background"
	"leasehold.dev/internal/fault"
)

// ErrInUse means that the session already holds that name, or waits for it. Locks are not
// reentrant: a program that needs two locks of one name makes two sessions.
var ErrInUse = errors.New("lock: the session has this name in use")

// Session is a lease of a client with the locks and candidacies that rest on it. Its methods may
// be called from any goroutine.
//
// A session ends with its lease and is never replaced by another (T25). It does not end the
// lease: the program that granted the lease revokes it, and that releases everything in one step.
type Session struct {
	client  *client.Client
	lease   *client.Lease
	tickets atomic.Int64 // of those that have a number

	mu   sync.Mutex     // guards what follows
	used map[string]use // by key
}

// use is a key that a ticket has, or had.
type use struct {
	// over is not nil once the ticket is being given up; closed when it is.
	over chan struct{}
}

// NewSession returns a session on a lease that the client keeps alive. Make only one session on a
// lease.
func NewSession(c *client.Client, l *client.Lease) *Session {
	return &Session{client: c, lease: l, used: make(map[string]use)}
}

// Lease returns the session's lease.
func (s *Session) Lease() *client.Lease { return s.lease }

// err returns nil as long as the session's lease is valid, by the clock, and then why it is not.
func (s *Session) err() error {
	if s.lease.Valid() {
		return nil
	}
	return s.lease.Err()
}

// use notes that the session uses a key. It waits for an earlier use that is being given up.
func (s *Session) use(ctx context.Context, key string) error {
	for {
		s.mu.Lock()
		u, used := s.used[key]
		if !used {
			s.used[key] = use{}
		}
		s.mu.Unlock()
		switch {
		case !used:
			return nil
		case u.over == nil:
			return ErrInUse
		}
		select {
		case <-u.over:
		case <-ctx.Done():
			return fault.Cause(ctx)
		}
	}
}

// giveUp ends the use of a key by a step in the background. Only the next use of the key waits
// for it, and the client's Close.
func (s *Session) giveUp(key string, step func(context.Context)) {
	over := make(chan struct{})
	s.mu.Lock()
	s.used[key] = use{over}
	s.mu.Unlock()
	background.Start(s.client, func(ctx context.Context) {
		step(ctx)
		s.unuse(key)
		close(over)
	})
}

// unuse ends the use of a key.
func (s *Session) unuse(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.used, key)
}
