package sim

import (
	"fmt"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/holder"
	"leasehold.dev/lease"
)

// session is a lease of one client with what the client believes because of it. Until
// when it is valid, and what is done about it, the keeper's holder.Set says.
type session struct {
	k     *keeper
	terms lease.Terms
	token lease.Token
	ended bool // given up, revoked, past its grace, or known to be gone
	quiet bool // it is not kept alive any more
	// bare is one whose renewals tell no token, as those of etcd's clients (T28).
	bare    bool
	beliefs []*Belief
	// asked is the request that granted the lease, if one did.
	asked fsm.Command
	// doubt says that it is not known which TTL the lease has.
	doubt bool
	// cache is the cache of the lease, if it has one.
	cache *cache
}

// local is an instant of true time by the client's clock, as a holder counts.
func (s *session) instant() lease.Instant { return s.k.c.clock.instant(s.k.c.w.now) }

// alive reports whether the client may rely on the lease now.
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

// until is the first instant at which the client must not rely on the lease.
func (s *session) until() Time {
	state, _ := s.state()
	return s.k.c.clock.world(Time(state.ValidUntil) * Millisecond)
}

// refresh notes how long the beliefs are good now.
func (s *session) refresh() {
	if !s.alive() {
		return
	}
	until := s.until()
	for _, b := range s.beliefs {
		b.Until = until
	}
}

// revive begins the beliefs anew: the lease was in jeopardy, and has not ended.
func (s *session) revive() {
	w := s.k.c.w
	for i, old := range s.beliefs {
		b := *old
		b.At, b.From, b.Until = w.now, w.now, s.until()
		s.beliefs[i] = &b
		w.h.Beliefs = append(w.h.Beliefs, &b)
	}
}

// believe notes that the client is sure to hold something from now on.
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

// release ends what the client believes to hold of a kind, because it gives that
// up.
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

// end gives the lease up with all that hangs on it.
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

// compareHolders is L1 as it happens: no holder of a lease believes longer than the leader does.
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
	if !ok || at == 0 { // its end is decided
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

// lostForNothing is a violation if the lease was kept alive and not renewed in time, though nothing
// has been wrong for long enough.
func (s *session) lostForNothing() {
	w := s.k.c.w
	healthy := Never
	if n := len(w.h.Healthy); n > 0 {
		healthy = w.h.Healthy[n-1].From
	}
	ttl := Time(s.terms.TTL) * Millisecond
	slow := s.k.stream != nil && s.k.stream.lag > 0
	if slow || s.quiet || s.doubt || s.cache != nil || s.k.c.user.User != "" || w.p.Room > 0 ||
		ttl < 100*w.p.Delay+Second || w.now-w.p.Limits().Recovery-2*ttl < healthy {
		return
	}
	w.broken("liveness", fmt.Sprintf("client %d kept lease %d alive, with a TTL of %v, and it was not "+
		"renewed in time", s.k.c.id, s.terms.ID, ttl))
}

// forget is end by the death of the process.
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

// rest lets the lease end by itself: it is renewed no more, but by thread.renew.
func (s *session) rest() {
	s.quiet = true
	if !s.ended {
		s.k.set.Rest(s.terms.ID)
	}
}

// begin makes a session of a lease that was granted to the client, and that is kept
// alive from now on. It was first asked for after sent.
func (c *client) begin(info *lease.Info, sent lease.Instant) *session {
	w := c.w
	s := &session{k: c.keeper, terms: info.Terms, token: info.Token, bare: w.chance(4)}
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

// grant gets a lease, with retries that the request ID ties together, by itself or in a
// transaction. It returns nil if the name is held by another, or after too many tries.
func (t *thread) grant(terms lease.Terms) *session {
	w := t.c.w
	terms.ID = lease.ID(w.rng.Int64N(1<<40) + 1)
	terms.RequestID = fmt.Sprintf("r%d", len(w.h.Ops))
	t.c.owned(&terms)
	var c fsm.Command = &fsm.Grant{Terms: terms}
	renews := w.chance(2) // the lease, if it is a repetition
	switch {
	case renews:
		c = (&fsm.Grant{Terms: terms}).Repeatable()
	case w.chance(4):
		c = &fsm.Txn{Then: []fsm.Op{{Grant: &fsm.Grant{Terms: terms}}}}
	}
	var sent lease.Instant
	for try := range 8 {
		op := t.command(c)
		if try == 0 || renews { // else the countdown goes on (T3)
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

// granted returns the lease that a command has given to who sent it, by a grant, a
// hand-over or a resume, nil if it has not.
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

// renew renews the lease once, out of turn, and reports whether there is an answer.
func (t *thread) renew(s *session) bool {
	s.k.advance()
	op := &Op{Kind: opRenew, Request: Request{Lease: s.terms.ID}}
	if !s.bare {
		op.Request.Token = s.token
	}
	b, held := s.k.set.Ask(s.terms.ID)
	t.do(op)
	if held {
		s.k.renewed(b.Seq, op)
	}
	return op.Outcome == Done
}

// renewBeside renews the lease out of turn, in one message with another, so that the replica
// takes both as one. The other is anybody's, and mostly gone. It does not wait for the answers.
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

// revoke ends the lease on purpose.
func (t *thread) revoke(s *session) {
	s.end()
	r := &fsm.Revoke{ID: s.terms.ID, Token: s.token, By: "holder"}
	if s.bare && s.terms.Name == "" { // one with a name may have been resumed by now
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
