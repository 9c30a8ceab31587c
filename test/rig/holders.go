package rig

import (
	"sync"
	"testing"

	"leasehold.dev/client"
)

// Holders checks successive holds of the same resource by different clients. Its methods can be
// called from any goroutine.
type Holders struct {
	mu sync.Mutex
	// last is the most recently added hold that was valid when it was added.
	last client.Hold
}

// Next adds a hold. It fails the test if the previous hold is still valid (L4), or if the previous
// token is not lower (L5). It ignores a hold that has already ended, because other holds may have
// been acquired and released in the meantime.
func (s *Holders) Next(t *testing.T, h client.Hold) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	// The order matters. If the previous hold is valid now, and the new one is valid when checked
	// after it, then both are valid at the same time.
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
