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

// maxAhead bounds how far a session's numbers can run ahead of its oldest open write. The cluster
// stores that many answers per session.
const maxAhead = 4096

// sessions assigns numbers to a client's writes, so that a retried write takes effect only once.
// There is usually one session. A very slow write can exhaust its session's numbers; the client
// then opens another session.
type sessions struct {
	mu   sync.Mutex // guards the following fields and the fields of each session
	list []*session
	// closed when the current attempt to open a session ends; nil if there is none
	opening chan struct{}
}

// session is a session in the cluster. The cluster may have dropped it since its last use.
//
// Invariant: the numbers from settled to last are open, except for those marked in done.
type session struct {
	of            *sessions
	ref           *pb.SessionRef
	settled, last uint64
	done          [maxAhead]bool // indexed by number modulo maxAhead
}

// number identifies a write within a session. The zero value means that there is none.
type number struct {
	session *session
	n       uint64
}

// number assigns a number to a write. If every session has run out of numbers, it opens another
// session over the link. If number returns an error, the write has not been sent.
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

// take returns either a number or a channel to wait for. first is true if the caller must open a
// session.
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

// opened adds the session that the caller has opened. ref is nil if that failed.
func (p *sessions) opened(ref *pb.SessionRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ref != nil {
		p.list = append(p.list, &session{of: p, ref: ref, settled: 1})
	}
	close(p.opening)
	p.opening = nil
}

// openSession opens a session. If the answer is lost, the cluster drops the session eventually.
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
	// only the session's outcome is unknown: the write has not been sent
	case errors.Is(err, ErrUnknownOutcome):
		return nil, fmt.Errorf("%w: no session was opened: %v", ErrUnavailable, err)
	default:
		return nil, err
	}
}

// settle marks a number as settled: the client no longer needs the answer.
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

// below returns the lowest number that is not settled yet.
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
