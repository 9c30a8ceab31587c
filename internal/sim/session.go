package sim

import (
	"errors"
	"fmt"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// session is a lease of one client with what the client believes because of it.
type session struct {
	c     *client
	terms lease.Terms
	token lease.Token
	// valid is valid until, by the client's clock (DESIGN 2.1).
	valid   Time
	ended   bool // given up, revoked, past valid until, or known to be gone
	quiet   bool // it is not kept alive any more
	beliefs []*Belief
}

// grant gets a lease, with retries that the first try's request ID ties together.
// It returns nil if the name is held by another, or after too many tries.
func (t *thread) grant(name string, ttl lease.TTL) *session {
	w := t.c.w
	s := &session{c: t.c, terms: lease.Terms{
		ID: lease.ID(w.rng.Int64N(1<<40) + 1), TTL: ttl, Name: name,
		RequestID: fmt.Sprintf("r%d", len(w.h.Ops)),
	}}
	var sent Time
	for try := range 8 {
		op := t.do(&Op{Kind: OpCommand, Request: Request{Command: &fsm.Grant{Terms: s.terms}}})
		if try == 0 {
			sent = op.LocalStart // the countdown of a retried grant goes on (T3)
		}
		if op.Outcome != Done {
			continue
		}
		info, ok := op.Fsm.Value.(*lease.Info)
		if !ok {
			return nil
		}
		if try > 0 {
			w.cover["grant retried"]++
		}
		s.token = info.Token
		w.leases = append(w.leases, s.terms.ID)
		t.c.sessions = append(t.c.sessions, s)
		s.valid = s.until(sent, op.LocalEnd)
		s.believe(BeliefLease, fmt.Sprint(s.terms.ID), 0)
		if name != "" {
			s.believe(BeliefName, name, 0)
		}
		return s
	}
	return nil
}

// until is how long the client may rely on a promise of the full TTL that it asked
// for at sent by its clock, and received at got.
func (s *session) until(sent, got Time) Time {
	w := s.c.w
	if w.opt.Plant == PlantCountFromReceipt {
		sent = got
	}
	ttl := float64(Time(s.terms.TTL) * Millisecond)
	return sent + Time(ttl*(1-w.p.Drift)) - w.p.Margin
}

// extend notes that a promise of the full TTL was acknowledged, that was asked for
// at sent by the client's clock, and received at got. A session that is past its valid
// until has ended for ever, whatever is said later: the lease may have ended, and a
// try of the grant that was on its way for so long have made another of the same ID,
// which is the one that was renewed (T28). The program goes on with a new session.
func (s *session) extend(sent, got Time) {
	if !s.alive() {
		s.c.w.cover["renewed too late"]++
		s.end()
		return
	}
	s.valid = max(s.valid, s.until(sent, got))
	until := s.c.clock.world(s.valid)
	for _, b := range s.beliefs {
		b.Until = until
	}
}

// alive reports whether the client may still rely on the lease.
func (s *session) alive() bool { return !s.ended && s.c.local() < s.valid }

// believe notes that the client is sure to hold something from now on.
func (s *session) believe(kind BeliefKind, what string, create int64) *Belief {
	w := s.c.w
	until := s.c.clock.world(s.valid)
	switch {
	case s.alive():
	case w.opt.Plant == PlantNoRecheck && kind == BeliefRole:
		until = w.now + Second
	default:
		return nil
	}
	b := &Belief{
		At: w.now, Client: s.c.id, Kind: kind, What: what, Lease: s.terms.ID, Token: s.token,
		From: w.now, Until: until, CreateRevision: create,
	}
	s.beliefs = append(s.beliefs, b)
	w.h.Beliefs = append(w.h.Beliefs, b)
	w.tracef("client %d holds %q by lease %x until %s", b.Client, what, b.Lease, b.Until)
	return b
}

// release ends what the client believes to hold of a kind, because it gives that
// up.
func (s *session) release(kind BeliefKind, what string) {
	rest := s.beliefs[:0]
	for _, b := range s.beliefs {
		if b.Kind != kind || b.What != what {
			rest = append(rest, b)
			continue
		}
		if now := s.c.w.now; b.Until > now {
			b.Until, b.Released = now, true
		}
	}
	s.beliefs = rest
}

// end gives the lease up with all that hangs on it.
func (s *session) end() {
	s.ended = true
	for len(s.beliefs) > 0 {
		s.release(s.beliefs[0].Kind, s.beliefs[0].What)
	}
	for i, x := range s.c.sessions {
		if x == s {
			s.c.sessions = append(s.c.sessions[:i:i], s.c.sessions[i+1:]...)
			return
		}
	}
}

// forget is end by the death of the process.
func (s *session) forget() {
	s.ended = true
	for _, b := range s.beliefs {
		if b.Until > s.c.w.now {
			b.Until, b.Forgotten = s.c.w.now, true
		}
	}
	s.beliefs = nil
}

// keep keeps the lease alive, on a thread of its own.
func (s *session) keep() {
	s.c.spawn(func(t *thread) {
		for !s.ended && !s.quiet {
			t.sleep(Time(s.terms.TTL) * Millisecond / 3)
			for !s.ended && !s.quiet && !t.renew(s) {
				t.sleep(Time(s.terms.TTL) * Millisecond / 20)
			}
		}
	})
}

// renew renews the lease once, and reports whether there is an answer.
func (t *thread) renew(s *session) bool {
	op := t.do(&Op{Kind: OpRenew, Request: Request{Lease: s.terms.ID}})
	switch {
	case op.Outcome != Done:
		return false
	case s.ended:
	case errors.Is(op.Err, lease.ErrNotFound):
		t.c.w.tracef("client %d lost lease %x", t.c.id, s.terms.ID)
		if s.alive() {
			t.c.w.cover["holder told of the loss while it was sure"]++
		}
		s.end()
	default:
		s.extend(op.LocalStart, op.LocalEnd)
	}
	return true
}

// revoke ends the lease on purpose.
func (t *thread) revoke(s *session) {
	s.end()
	for range 5 {
		op := t.do(&Op{Kind: OpCommand, Request: Request{Command: &fsm.Revoke{ID: s.terms.ID}}})
		if op.Outcome == Done {
			return
		}
	}
}
