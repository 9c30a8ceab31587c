package rig

import (
	"sync"
	"testing"

	"leasehold.dev/client"
)

// Holders checks the holds of clients that hold one thing after another. Its methods may be called
// from any goroutine.
type Holders struct {
	mu sync.Mutex
	// last is the last hold that was valid when it was added.
	last client.Hold
}

// Next adds a hold, and fails the test if the previous one is still valid (L4), or does not have a
// lower token (L5). A hold that ended before it was added is ignored: another may have been
// acquired and released since.
func (s *Holders) Next(t *testing.T, h client.Hold) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	// The order matters: if the other is still valid, and then this one is, both were valid at
	// once.
	valid := s.last != nil && s.last.Err() == nil
	if h.Err() != nil {
		return
	}
	switch {
	case valid:
		t.Errorf("two hold it: with tokens %d and %d", s.last.Token(), h.Token())
	case s.last != nil && h.Token() <= s.last.Token():
		t.Errorf("token %d after %d", h.Token(), s.last.Token())
	}
	s.last = h
}
