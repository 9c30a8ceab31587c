// Package uses records which keys a session uses, so that package lock does not wait for itself.
// Package client stores a Set in the context of each session.
package uses

import (
	"context"
	"sync"
	"sync/atomic"

	"leasehold.dev/internal/fault"
)

type contextKey struct{}

// With returns a context with a new Set.
func With(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, &Set{used: make(map[string]chan struct{})})
}

// Of returns the context's Set.
func Of(ctx context.Context) *Set { return ctx.Value(contextKey{}).(*Set) }

// Set is the set of keys that a session uses. Its methods are safe for concurrent use.
type Set struct {
	tickets atomic.Int64

	mu sync.Mutex // guards used
	// used maps each key in use to nil, and each key that is being given up to a channel that is
	// closed once the key is free.
	used map[string]chan struct{}
}

// Ticket returns a number that is unique within the session.
func (s *Set) Ticket() int64 { return s.tickets.Add(1) }

// Use adds a key and reports whether it was unused. If the key is being given up, Use first waits
// for that to finish.
func (s *Set) Use(ctx context.Context, key string) (free bool, err error) {
	for {
		s.mu.Lock()
		over, used := s.used[key]
		if !used {
			s.used[key] = nil
		}
		s.mu.Unlock()
		switch {
		case !used:
			return true, nil
		case over == nil:
			return false, nil
		}
		select {
		case <-over:
		case <-ctx.Done():
			return false, fault.Cause(ctx)
		}
	}
}

// Await waits until no matching key is being given up.
func (s *Set) Await(ctx context.Context, match func(key string) bool) error {
	for {
		var over chan struct{}
		s.mu.Lock()
		for key, c := range s.used {
			if c != nil && match(key) {
				over = c
			}
		}
		s.mu.Unlock()
		if over == nil {
			return nil
		}
		select {
		case <-over:
		case <-ctx.Done():
			return fault.Cause(ctx)
		}
	}
}

// GiveUp makes the next Use of a key wait until done is called.
func (s *Set) GiveUp(key string) (done func()) {
	over := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[key] = over
	return func() {
		s.Remove(key)
		close(over)
	}
}

// Remove ends the use of a key.
func (s *Set) Remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.used, key)
}
