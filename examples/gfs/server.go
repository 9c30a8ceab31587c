package main

import (
	"context"
	"errors"
	"slices"
	"sync"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/lease"
)

var (
	errCutOff     = errors.New("the server is cut off")
	errNotPrimary = errors.New("another server is the chunk's primary")
	errOld        = errors.New("the chunk has a newer version")
)

// replica is a server's copy of a chunk.
type replica struct {
	version lease.Token
	records []string
}

// server is a chunk server. Its methods implement the messages that it receives.
type server struct {
	name   string
	c      *client.Client
	others []*server

	mu     sync.Mutex
	cut    bool
	chunks map[string]*replica
	leads  map[string]*client.Lease
}

func newServer(name string, c *client.Client) *server {
	return &server{
		name: name, c: c,
		chunks: make(map[string]*replica), leads: make(map[string]*client.Lease),
	}
}

// lead handles the master's message that makes the server the primary of a chunk.
func (s *server) lead(ctx context.Context, chunk string, secret []byte) error {
	s.mu.Lock()
	cut := s.cut
	s.mu.Unlock()
	if cut {
		return errCutOff
	}
	l, err := s.c.Resume(ctx, leases.Ref{Name: prefix + chunk}, secret, -1)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.leads[chunk] = l
	s.mu.Unlock()
	// The primary's data is authoritative. It includes everything acknowledged, and perhaps a
	// record that its predecessor did not send to all replicas.
	have := s.read(chunk)
	for _, r := range append([]*server{s}, s.others...) {
		if err := r.begin(chunk, l.Token(), have); err != nil && !errors.Is(err, errCutOff) {
			return err
		}
	}
	return nil
}

// write handles a client's request to append a record to a chunk, as its primary. It returns nil
// once all reachable replicas have the record, in the primary's order.
func (s *server) write(chunk, record string) error {
	s.mu.Lock()
	l, cut := s.leads[chunk], s.cut
	s.mu.Unlock()
	switch {
	case cut:
		return errCutOff
	case l == nil || l.Err() != nil:
		return errNotPrimary
	}
	for _, r := range append([]*server{s}, s.others...) {
		if err := r.append(chunk, l.Token(), record); err != nil && !errors.Is(err, errCutOff) {
			return err
		}
	}
	return nil
}

// begin sends a replica the new primary's version and the chunk's contents.
func (s *server) begin(chunk string, version lease.Token, records []string) error {
	return s.change(chunk, version, func(r *replica) { r.records = slices.Clone(records) })
}

// append handles the primary's request to append a record.
func (s *server) append(chunk string, version lease.Token, record string) error {
	return s.change(chunk, version, func(r *replica) { r.records = append(r.records, record) })
}

// change applies f unless the version is older than the replica's. This is the fence.
func (s *server) change(chunk string, version lease.Token, f func(r *replica)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.chunks[chunk]
	if r == nil {
		r = &replica{}
		s.chunks[chunk] = r
	}
	switch {
	case s.cut:
		return errCutOff
	case version < r.version:
		return errOld
	}
	r.version = version
	f(r)
	return nil
}

// read returns this server's records of a chunk.
func (s *server) read(chunk string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.chunks[chunk]; r != nil {
		return slices.Clone(r.records)
	}
	return nil
}

// cutOff disconnects the server and returns it, with the version of a chunk that it leads.
func (s *server) cutOff(chunk string) (*server, lease.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = true
	for _, l := range s.leads {
		l.Close() // renewals fail from now on
	}
	return s, s.chunks[chunk].version
}
