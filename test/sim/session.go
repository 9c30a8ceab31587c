package sim

import (
	"fmt"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/holder"
	"leasehold.dev/lease"
)

// session is a client's lease together with the client's beliefs. The keeper's holder.Set decides
// how long the lease is valid and what to do.
type session struct {
	k     *keeper
	terms lease.Terms
	token lease.Token
	ended bool // given up, revoked, past its grace period, or known to have ended
	quiet bool // the lease is no longer kept alive
	// tokenless is set if renewals carry no token, like renewals by etcd clients (T28).
	tokenless bool
	beliefs   []*Belief
	// asked is the request that granted the lease, if any.
	asked fsm.Command
	// ttlUnknown is set while the lease's TTL is unknown.
	ttlUnknown bool
	// cache is the lease's cache, if any.
	cache *cache
}

// instant reads the client's clock as a lease.Instant.
func (s *session) instant() lease.Instant { return s.k.c.clock.instant(s.k.c.w.now) }

// alive reports whether the client may currently rely on the lease.
func (s *session) alive() bool {
	s.k.advance()
	state, ok := s.state()
	return ok && state.Status == holder.OK
}

func (s *session) state() (holder.State, bool) {
	if s.ended {
		return holder.State{}, false
	}
	return s.k.set.State(s.terms.ID)
}

// until returns the first instant at which the client may no longer rely on the lease.
func (s *session) until() Time {
	state, _ := s.state()
	return s.k.c.clock.world(Time(state.ValidUntil) * Millisecond)
}

// refresh extends the beliefs to match the lease's validity.
func (s *session) refresh() {
	if !s.alive() {
		return
	}
	until := s.until()
	for _, b := range s.beliefs {
		b.Until = until
	}
}

// revive records the beliefs again, starting now, after the lease was in jeopardy but did not end.
func (s *session) revive() {
	w := s.k.c.w
	for i, old := range s.beliefs {
		b := *old
		b.At, b.From, b.Until = w.now, w.now, s.until()
		s.beliefs[i] = &b
		w.h.Beliefs = append(w.h.Beliefs, &b)
	}
}

// believe records that the client holds something, starting now.
func (s *session) believe(kind beliefKind, what string, create int64) *Belief {
	w := s.k.c.w
	if !s.alive() {
		return nil
	}
	b := &Belief{
		At: w.now, Client: s.k.c.id, Kind: kind, What: what, Lease: s.terms.ID, Token: s.token,
		From: w.now, Until: s.until(), CreateRevision: create,
	}
	s.beliefs = append(s.beliefs, b)
	w.h.Beliefs = append(w.h.Beliefs, b)
	w.tracef("client %d holds %q by lease %x until %s", b.Client, what, b.Lease, b.Until)
	return b
}

// release ends the client's belief that it holds something, because the client releases it.
func (s *session) release(kind beliefKind, what string) {
	rest := s.beliefs[:0]
	for _, b := range s.beliefs {
		if b.Kind != kind || b.What != what {
			rest = append(rest, b)
			continue
		}
		if now := s.k.c.w.now; b.Until > now {
			b.Until, b.Released = now, true
		}
	}
	s.beliefs = rest
}

// end gives up the lease and all beliefs based on it.
func (s *session) end() {
	for len(s.beliefs) > 0 {
		s.release(s.beliefs[0].Kind, s.beliefs[0].What)
	}
	if s.ended {
		return
	}
	s.ended = true
	if s.cache != nil {
		s.cache.end()
	}
	for i, x := range s.k.sessions {
		if x == s {
			s.k.set.Drop(s.terms.ID)
			s.k.sessions = append(s.k.sessions[:i:i], s.k.sessions[i+1:]...)
			return
		}
	}
}

// compareHolders checks L1 during the run: no holder considers a lease valid for longer than the
// leader does.
func compareHolders(w *world, id lease.ID) {
	p := w.oracle.leader
	if !w.h.InBound || p == nil || p.dead {
		return
	}
	status, machine := p.r.Status(), p.r.Machine()
	if !status.Primary || status.Term != w.oracle.term || machine.Index() < w.oracle.machine.Index() {
		return
	}
	lessor := machine.Lessor()
	info, _ := lessor.Lookup(id)
	at, ok := lessor.Expiry(id)
	if !ok || at == 0 { // the lease's end has been decided
		return
	}
	ends := p.m.clock.after(at + p.born)
	for _, c := range w.clients {
		s := c.keeper.find(id)
		if s == nil || s.token != info.Token {
			continue
		}
		w.cover["holder and leader compared"]++
		if state, ok := s.state(); ok && state.Status == holder.OK && s.until() > ends {
			w.broken("L1", fmt.Sprintf("client %d believes in lease %d (token %d) until %v, and the "+
				"leader, member %d, until %v", c.id, id, info.Token, s.until(), p.m.id, ends))
		}
	}
}

// checkNeedlessLoss reports a violation if a lease was kept alive but not renewed in time, although
// no fault has occurred recently.
func (s *session) checkNeedlessLoss() {
	w := s.k.c.w
	healthy := Never
	if n := len(w.h.Healthy); n > 0 {
		healthy = w.h.Healthy[n-1].From
	}
	ttl := Time(s.terms.TTL) * Millisecond
	slow := s.k.stream != nil && s.k.stream.lag > 0
	if slow || s.quiet || s.ttlUnknown || s.cache != nil || s.k.c.user.User != "" || w.p.Room > 0 ||
		ttl < 100*w.p.Delay+Second || w.now-w.p.Limits().Recovery-2*ttl < healthy {
		return
	}
	w.broken("liveness", fmt.Sprintf("client %d kept lease %d alive, with a TTL of %v, and it was not "+
		"renewed in time", s.k.c.id, s.terms.ID, ttl))
}

// forget ends the session because the client's process died.
func (s *session) forget() {
	s.ended = true
	if s.cache != nil {
		s.cache.dead = true
	}
	for _, b := range s.beliefs {
		if b.Until > s.k.c.w.now {
			b.Until, b.Forgotten = s.k.c.w.now, true
		}
	}
	s.beliefs = nil
}

// rest stops keeping the lease alive, so that it expires. thread.renew can still renew it.
func (s *session) rest() {
	s.quiet = true
	if !s.ended {
		s.k.set.Rest(s.terms.ID)
	}
}

// begin creates a session for a granted lease and starts keeping it alive. For sent, see
// holder.Held.
func (c *client) begin(info *lease.Info, sent lease.Instant) *session {
	w := c.w
	s := &session{k: c.keeper, terms: info.Terms, token: info.Token, tokenless: w.chance(4)}
	h := holder.Held{
		ID: info.ID, Token: info.Token, TTL: info.TTL, Sent: sent,
	}
	if w.chance(2) {
		h.Grace = info.TTL
	}
	w.leases = append(w.leases, info.ID)
	if s = c.keeper.add(s, h); s == nil {
		return nil
	}
	s.believe(beliefLease, fmt.Sprint(info.ID), 0)
	if info.Name != "" {
		s.believe(beliefName, info.Name, 0)
	}
	return s
}

// grant grants a lease, directly or in a transaction, and retries with the same request ID. It
// returns nil if another client holds the name, or after too many attempts.
func (t *thread) grant(terms lease.Terms) *session {
	w := t.c.w
	terms.ID = lease.ID(w.rng.Int64N(1<<40) + 1)
	terms.RequestID = fmt.Sprintf("r%d", len(w.h.Ops))
	t.c.owned(&terms)
	var c fsm.Command = &fsm.Grant{Terms: terms}
	renews := w.chance(2) // whether a repeated request renews the lease
	switch {
	case renews:
		c = (&fsm.Grant{Terms: terms}).Repeatable()
	case w.chance(4):
		c = &fsm.Txn{Then: []fsm.Op{{Grant: &fsm.Grant{Terms: terms}}}}
	}
	var sent lease.Instant
	for try := range 8 {
		op := t.command(c)
		if try == 0 || renews { // otherwise the countdown continues (T3)
			sent = lease.Instant(op.LocalStart / Millisecond)
		}
		if op.Outcome != Done {
			continue
		}
		info := granted(&op.Fsm)
		if info == nil {
			if denial(op.Fsm.Err) {
				t.think()
			}
			return nil
		}
		if _, existed := fsm.GrantResult(op.Fsm.Value); existed && renews {
			w.cover["grant retried and renewed"]++
		} else if try > 0 {
			w.cover["grant retried"]++
		}
		s := t.c.begin(info, sent)
		if s != nil {
			s.asked = c
		}
		return s
	}
	return nil
}

// granted returns the lease that a caller obtained by a grant, hand-over or resume, or nil.
func granted(r *fsm.Result) *lease.Info {
	if v, ok := r.Value.(*fsm.TxnResult); ok {
		for _, resp := range v.Responses {
			if info, _ := fsm.GrantResult(resp); info != nil {
				return info
			}
		}
	}
	info, _ := fsm.GrantResult(r.Value)
	return info
}

// renew renews the lease once, outside the keeper's schedule, and reports whether it was answered.
func (t *thread) renew(s *session) bool {
	s.k.advance()
	op := &Op{Kind: opRenew, Request: Request{Lease: s.terms.ID}}
	if !s.tokenless {
		op.Request.Token = s.token
	}
	b, held := s.k.set.Ask(s.terms.ID)
	t.do(op)
	if held {
		s.k.renewed(b.Seq, op)
	}
	return op.Outcome == Done
}

// renewBeside renews the lease outside the keeper's schedule. It sends the renewal in one message
// with a renewal of another lease, which has often ended, so that the replica processes both
// together. It does not wait for the answers.
func (t *thread) renewBeside(s *session) {
	w := t.c.w
	s.k.advance()
	b, held := s.k.set.Ask(s.terms.ID)
	if other := w.leases[w.rng.IntN(len(w.leases))]; held && other != s.terms.ID {
		s.k.send(&b, other)
	} else if held {
		s.k.send(&b)
	}
}

// revoke revokes the lease.
func (t *thread) revoke(s *session) {
	s.end()
	r := &fsm.Revoke{ID: s.terms.ID, Token: s.token, By: "holder"}
	if s.tokenless && s.terms.Name == "" { // a named lease may have been resumed in the meantime
		r.Token = 0
	}
	if s.terms.Name != "" && t.c.w.chance(2) {
		r.ID, r.Name = 0, s.terms.Name
	}
	var c fsm.Command = r
	if t.c.w.chance(4) {
		c = &fsm.Txn{Then: []fsm.Op{{Revoke: r}}}
	}
	for range 5 {
		if op := t.command(c); op.Outcome == Done {
			return
		}
	}
}
