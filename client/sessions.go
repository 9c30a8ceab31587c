package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	pb "leasehold.dev/api/leasehold/v1"
)

// maxAhead bounds the numbers of a session that are open, or settled after an open one. The cluster
// keeps as many answers per session.
const maxAhead = 4096

// sessions numbers a client's writes, so that a retried write takes effect once. There is usually
// one session. There may be more while a write takes very long, since the numbers after it run out.
type sessions struct {
	mu      sync.Mutex // guards the following fields, and the fields of the sessions
	list    []*session
	opening chan struct{} // nil, or closed when the attempt to open a session is over
}

// session is a session in the cluster, which may have dropped it since the last use.
//
// Invariant: the numbers from settled to last are open, except those in done.
type session struct {
	of            *sessions
	ref           *pb.SessionRef
	settled, last uint64
	done          [maxAhead]bool // by number modulo maxAhead
}

// number is the number of a write; the zero value means none.
type number struct {
	session *session
	n       uint64
}

// number assigns a number. If no session has one left, it opens another session over the link.
// After an error the write itself has not been sent.
func (c *Client) number(ctx context.Context, l *link) (number, error) {
	p := &c.sessions
	for {
		n, opening, first := p.take()
		switch {
		case n.session != nil:
			return n, nil
		case first:
			ref, err := c.openSession(ctx, l)
			p.opened(ref)
			if err != nil {
				return number{}, err
			}
		default:
			select {
			case <-opening:
			case <-ctx.Done():
				return number{}, &linkError{
					cause: overBy(ctx),
				}
			}
		}
	}
}

// take returns a number, or a channel to wait for; first is true if the caller must open a session.
func (p *sessions) take() (_ number, opening chan struct{}, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.list {
		if s.last+1-s.settled < maxAhead {
			s.last++
			return number{s, s.last}, nil, false
		}
	}
	if first = p.opening == nil; first {
		p.opening = make(chan struct{})
	}
	return number{}, p.opening, first
}

// opened adds a session that was opened, nil if that failed.
func (p *sessions) opened(ref *pb.SessionRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ref != nil {
		p.list = append(p.list, &session{of: p, ref: ref, settled: 1})
	}
	close(p.opening)
	p.opening = nil
}

// openSession opens a session. If the answer is lost, the cluster eventually drops the session.
func (c *Client) openSession(ctx context.Context, l *link) (*pb.SessionRef, error) {
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // never fails
	resp, err := c.attempt(ctx, l, &spec{kind: read}, &pb.Request{
		Body: &pb.Request_Session{Session: &pb.SessionRequest{
			Nonce: binary.BigEndian.Uint64(nonce[:]),
		}},
	})
	var broken *linkError
	switch {
	case err == nil:
		return resp.GetSession().GetSession(), nil
	case errors.As(err, &broken):
		return nil, &linkError{cause: broken.cause}
	case errors.Is(err, ErrUnknownOutcome): // unknown for the session, not for the write
		return nil, fmt.Errorf("%w: no session was opened: %v", ErrUnavailable, err)
	default:
		return nil, err
	}
}

// settle marks a number whose answer the client no longer needs.
func (n number) settle() {
	s := n.session
	if s == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.done[n.n%maxAhead] = true
	for s.settled <= s.last && s.done[s.settled%maxAhead] {
		s.done[s.settled%maxAhead] = false
		s.settled++
	}
}

// below returns the number below which all are settled.
func (s *session) below() uint64 {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.settled
}

// forget stops using a session that the cluster has dropped.
func (s *session) forget() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.list = slices.DeleteFunc(s.of.list, func(other *session) bool { return other == s })
}
