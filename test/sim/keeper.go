package sim

import (
	"errors"
	"slices"

	"leasehold.dev/internal/holder"
	"leasehold.dev/lease"
)

// keeper keeps the leases of a client's process alive. It does in virtual time what package client
// does around a holder.Set, so the checkers test the production holder code.
type keeper struct {
	waker
	c   *client
	set *holder.Set
	// sessions holds the session of each lease in set.
	sessions []*session
	flying   []*call // unanswered renewals
	stream   *stream // the most recent stream; nil before the first
	dead     bool
}

// batchMost is the number of leases in one renewal. It is small so that a batch has several
// renewals.
const batchMost = 3

func newKeeper(c *client) *keeper {
	w := c.w
	k := &keeper{c: c, set: holder.New(holder.Config{
		Drift: w.p.Drift, Margin: lease.TTL(w.p.Margin / Millisecond), First: 100,
	}, c.clock.instant(w.now))}
	k.waker = waker{w, Never, k.step}
	return k
}

// find returns the session of a lease.
func (k *keeper) find(id lease.ID) *session {
	for _, s := range k.sessions {
		if s.terms.ID == id {
			return s
		}
	}
	return nil
}

// kept returns the leases that the client keeps alive over its connection.
func (k *keeper) kept() (ids []lease.ID) {
	for _, s := range k.sessions {
		if !s.quiet {
			ids = append(ids, s.terms.ID)
		}
	}
	return ids
}

// kill ends the process.
func (k *keeper) kill() {
	k.dead = true
	for _, s := range k.sessions {
		s.forget()
	}
	k.sessions = nil
}

// step performs the work that is due.
func (k *keeper) step() {
	switch {
	case k.dead:
		return
	case k.c.paused > k.c.w.now:
		k.wake(k.c.paused)
		return
	}
	k.advance()
	k.connect()
	for b, ok := k.set.Due(batchMost); ok; b, ok = k.set.Due(batchMost) {
		k.send(&b)
	}
	if at, ok := k.set.Next(); ok {
		k.wake(k.c.clock.after(at))
	}
}

// advance brings the sessions up to date.
func (k *keeper) advance() {
	k.set.Advance(k.c.clock.instant(k.c.w.now))
	k.changed()
}

// changed notifies the sessions of their new states.
func (k *keeper) changed() {
	for _, ch := range k.set.Changes() {
		s := k.find(ch.ID)
		switch {
		case s == nil:
		case ch.Status == holder.Ended:
			k.c.w.tracef("client %d: lease %x has ended, reason %d", k.c.id, ch.ID, ch.Reason)
			if ch.Reason == holder.Expired {
				s.checkNeedlessLoss()
			}
			s.end()
		case ch.Status == holder.OK:
			k.c.w.cover["lease back from jeopardy"]++
			s.revive()
		}
	}
}

// send sends a batch together with renewals of leases that the keeper does not keep alive. If the
// member has not answered the previous batch, send sometimes switches to another member.
func (k *keeper) send(b *holder.Batch, beside ...lease.ID) {
	w := k.c.w
	if b.Waited > 0 && w.chance(k.patience()) {
		k.c.hangUp()
		k.c.at = w.anyMember()
	}
	var calls []*call
	over := k.stream // the stream that the batch was created for
	for _, ref := range b.Leases {
		calls = append(calls, &call{c: k.c, who: k, token: b.Seq, stream: over, op: &Op{
			Kind: opRenew, Request: Request{Lease: ref.ID, Token: ref.Token},
		}})
	}
	if len(b.Groups)+len(b.Leave) > 0 {
		calls = append(calls, &call{c: k.c, who: k, token: b.Seq, stream: over, op: &Op{
			Kind: opGroups, Request: Request{Groups: &renewedGroups{Batch: *b, kept: k.kept()}},
		}})
	}
	for _, id := range beside {
		calls = append(calls, &call{c: k.c, who: k, token: b.Seq, beside: true, stream: over, op: &Op{
			Kind: opRenew, Request: Request{Lease: id},
		}})
	}
	if len(calls) > 1 {
		w.cover["renewals in one message"]++
	}
	k.flying = append(k.flying, calls...)
	k.c.send(calls...)
}

// patience is how many batches, on average, a keeper with an unanswered batch sends before it
// suspects that its stream is broken. Answers take longer through a relay.
func (k *keeper) patience() int {
	if s := k.stream; s != nil && s.via != nil {
		return 16
	}
	return 2
}

func (k *keeper) gone() bool { return k.dead }

// answered implements caller.
func (k *keeper) answered(q *call) {
	switch w := k.c.w; {
	case k.dead:
		return
	case k.c.paused > w.now:
		w.at(k.c.paused, func() { k.answered(q) })
		return
	}
	q.finish()
	k.flying = slices.DeleteFunc(k.flying, func(x *call) bool { return x == q })
	k.failed(q)
	switch {
	case q.op.Kind == opGroups:
		k.groupsRenewed(q.token, q.op)
	case !q.beside:
		k.renewed(q.token, q.op)
		k.joined(q)
		if q.op.relayed() {
			compareHolders(k.c.w, q.op.Lease)
		}
	}
	k.step()
}

// renewed handles the outcome of a renewal.
func (k *keeper) renewed(seq uint64, op *Op) {
	k.advance()
	s := k.find(op.Lease)
	switch {
	case op.Outcome != Done:
		k.set.Unknown(seq, op.Lease)
	case errors.Is(op.Err, lease.ErrNotFound):
		if s != nil && s.alive() {
			k.c.w.cover["holder told of the loss while it was sure"]++
		}
		k.set.Gone(seq, op.Lease)
	default:
		if s == nil {
			k.c.w.cover["renewed too late"]++
		}
		k.set.Renewed(seq, op.Lease, op.TTL)
	}
	k.settle(op.Lease)
}

// settle updates the session after an answer.
func (k *keeper) settle(id lease.ID) {
	k.changed()
	if s := k.find(id); s != nil {
		s.refresh()
	}
}

// add adds a lease and returns its session, or nil if the lease is no longer valid.
func (k *keeper) add(s *session, h holder.Held) *session {
	k.advance()
	if old := k.find(s.terms.ID); old != nil {
		old.end()
	}
	if s.tokenless {
		h.Token, h.Grace = 0, 0
	}
	if k.set.Add(h).Status == holder.Ended {
		k.c.w.cover["granted too late"]++
		return nil
	}
	k.sessions = append(k.sessions, s)
	k.wake(k.c.w.now)
	return s
}
