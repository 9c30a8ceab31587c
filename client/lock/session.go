package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"leasehold.dev/client"
	"leasehold.dev/internal/fault"
)

// ErrInUse means that the session holds, or waits for, that name already. Nothing here is
// reentrant: a program that needs two locks of one name makes two sessions.
var ErrInUse = errors.New("lock: the session has this name in use")

// Session is what of a client's lease the locks and candidacies of a program hang on. Its
// methods may be called from any goroutine.
//
// It ends with the lease and is never replaced by another (T25). It does not end the lease:
// the program that granted it revokes it, which gives up all that hangs on it in one step.
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

// NewSession returns a session on a lease that the client keeps alive. Of one lease make
// one session.
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

// giveUp ends the use of a key by a step that may take a while, on a goroutine of its
// own: nothing is to wait for it but the next use.
func (s *Session) giveUp(key string, step func()) {
	over := make(chan struct{})
	s.mu.Lock()
	s.used[key] = use{over}
	s.mu.Unlock()
	go func() {
		step()
		s.unuse(key)
		close(over)
	}()
}

// unuse ends the use of a key.
func (s *Session) unuse(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.used, key)
}
