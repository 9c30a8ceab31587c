package rig

import (
	"sync"
	"testing"

	"leasehold.dev/client"
)

// Holders is what those learn of each other who hold one thing after another. Its methods may be
// called from any goroutine.
type Holders struct {
	mu sync.Mutex
	// last is the last that was valid when it came.
	last client.Hold
}

// Next fails the test if the one before is still valid (L4), or has no lower token (L5). A hold
// that ended before it came here says nothing: another may have come and gone since.
func (s *Holders) Next(t *testing.T, h client.Hold) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	// In this order: if the other holds it still, and then this one does, both did.
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
