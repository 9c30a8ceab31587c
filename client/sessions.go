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

// maxAhead is how many numbers of a session may be open, and settled behind open ones: the
// cluster remembers as many answers of a session.
const maxAhead = 4096

// sessions gives numbers to a client's writes, so that those that are sent again take effect
// once. There is mostly one session; while a write takes very long there may be more,
// since the numbers behind it run out.
type sessions struct {
	mu      sync.Mutex // guards what follows, and what is in the sessions
	list    []*session
	opening chan struct{} // nil, or closed when the session that is being opened is there, or not
}

// session is one that the cluster knows, or has forgotten since it was used last.
//
// Invariant: the numbers from settled to last are open, but for those that are done.
type session struct {
	of            *sessions
	ref           *pb.SessionRef
	settled, last uint64
	done          [maxAhead]bool // by number modulo maxAhead
}

// number is that of a write; the zero value is none.
type number struct {
	session *session
	n       uint64
}

// number gives out a number. If no session has one left it opens another over the link. An
// error says that nothing was sent for the write itself.
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

// take returns a number, or what to wait for until there is one; first says that there is
// nobody to wait for, and that the caller is to open a session.
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

// opened takes in a session that was opened, nil if that failed.
func (p *sessions) opened(ref *pb.SessionRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ref != nil {
		p.list = append(p.list, &session{of: p, ref: ref, settled: 1})
	}
	close(p.opening)
	p.opening = nil
}

// openSession opens a session. That of a try whose answer was lost is forgotten by and by.
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
	case errors.Is(err, ErrUnknownOutcome): // of the session, not of the write
		return nil, fmt.Errorf("%w: no session was opened: %v", ErrUnavailable, err)
	default:
		return nil, err
	}
}

// settle says that nobody waits for the answer to a number any more.
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

// forget makes no more use of a session, since the cluster has forgotten it.
func (s *session) forget() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.list = slices.DeleteFunc(s.of.list, func(other *session) bool { return other == s })
}
