package main

import (
	"context"
	"errors"
	"slices"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/lease"
)

var errOld = errors.New("the chunk has a newer version")

// server is a chunk server with a replica of the chunk. Its methods implement the messages that it
// receives.
type server struct {
	name     string
	c        *client.Client
	replicas []*server // all servers, including this one
	lease    *client.Lease
	cut      bool // messages no longer reach it

	version lease.Token
	records []string
}

// lead handles the master's message that makes the server the primary.
func (s *server) lead(ctx context.Context, secret []byte) (err error) {
	s.lease, err = s.c.Resume(ctx, leases.Ref{Name: chunk}, secret, -1)
	if err != nil {
		return err
	}
	// The primary's data is authoritative. It includes everything acknowledged, and perhaps a
	// record that its predecessor did not send to all replicas.
	have := s.records
	return s.send(func(r *server) { r.records = slices.Clone(have) })
}

// write handles a client's request to append a record, as the primary. It returns nil once all
// reachable replicas have the record, in the primary's order.
func (s *server) write(record string) error {
	if err := s.lease.Err(); err != nil {
		return err
	}
	return s.send(func(r *server) { r.records = append(r.records, record) })
}

// send makes the same change to all reachable replicas, with the primary's version. In this example
// a server that is cut off never returns, so it cannot become the primary without the change.
func (s *server) send(f func(r *server)) error {
	for _, r := range s.replicas {
		if r.cut {
			continue
		}
		if err := r.change(s.lease.Token(), f); err != nil {
			return err
		}
	}
	return nil
}

// change applies f unless the version is older than the replica's. This is the fence: the primary's
// lease may have ended since the primary checked it.
func (s *server) change(version lease.Token, f func(r *server)) error {
	if version < s.version {
		return errOld
	}
	s.version = version
	f(s)
	return nil
}

// cutOff disconnects the server from the others and from the cluster.
func (s *server) cutOff() {
	s.cut = true
	s.lease.Close() // the lease is no longer renewed
}
