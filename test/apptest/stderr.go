package apptest

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

// Stderr is the standard error of a command. Tests can wait for the next write to it.
type Stderr struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{}
}

// NewStderr returns an empty Stderr. Write blocks while the given number of earlier writes are
// still waiting for Await.
func NewStderr(writes int) *Stderr { return &Stderr{written: make(chan struct{}, writes)} }

// Write implements io.Writer.
func (s *Stderr) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.text.Write(b)
	s.written <- struct{}{}
	return n, err
}

// Await waits for a write and checks that the text written since the last call contains want.
func (s *Stderr) Await(t *testing.T, want string) {
	t.Helper()
	<-s.written
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.Contains(s.text.String(), want) {
		t.Errorf("standard error has %q; want %q", s.text.String(), want)
	}
	s.text.Reset()
}
