package holder

import (
	"math/bits"

	"leasehold.dev/lease"
)

// maxFlights limits the number of unanswered batches. Answers to older batches are ignored, because
// they are too late to be useful.
const maxFlights = 1024

// Due returns the leases to renew now: those that are due and, if there are any, others that become
// due within the gathering time. most limits the total. ok is false if none are due.
func (s *Set) Due(most int) (b Batch, ok bool) {
	first, ok := s.turns.first(s.now)
	if !ok || most <= 0 {
		return Batch{}, false
	}
	soon := plus(s.now, max(s.cfg.Gather, min(first.TTL, first.bound)/gatherPart))
	s.seq++
	b.Seq = s.seq
	if first.members != nil || len(s.leave) >= MaxLeave {
		s.dueGroups(&b, soon)
	}
	for len(b.Leases) < most && len(b.Groups)+len(b.Leave) == 0 {
		l, ok := s.turns.first(soon)
		if !ok || l.asked == s.seq || l.members != nil {
			break
		}
		s.ask(l, &b)
	}
	s.depart(&b)
	return b, true
}

// Ask returns a batch with a single lease that must be renewed before it is due, for example in a
// transaction. ok is false if the lease is not held.
func (s *Set) Ask(id lease.ID) (b Batch, ok bool) {
	l := s.leases[id]
	if l == nil {
		return Batch{}, false
	}
	s.part(l)
	s.seq++
	b.Seq = s.seq
	s.ask(l, &b)
	s.depart(&b)
	return b, true
}

// ask adds a lease to a batch.
func (s *Set) ask(l *held, b *Batch) {
	delete(s.leave, l.ID)
	l.batch = b.Seq
	s.tried(l, b)
	b.Leases = append(b.Leases, Ref{l.ID, l.Token})
}

// tried records that a lease or a group is about to be renewed.
func (s *Set) tried(l *held, b *Batch) {
	if l.asked != 0 {
		b.Waited = max(b.Waited, lease.TTL(s.now-l.tried))
	}
	if l.tries > 0 {
		b.Repeated++
	}
	l.asked, l.tried = b.Seq, s.now
	l.tries++
	s.turn(l, s.retryAt(l))
}

// depart records that a batch is about to be sent.
func (s *Set) depart(b *Batch) {
	if n := len(b.Leases) + len(b.Groups); n > 0 {
		s.flights[b.Seq] = &flight{sent: s.now, left: n}
	}
	for ; len(s.flights) > maxFlights; s.oldest++ {
		delete(s.flights, s.oldest)
	}
}

// Renewed records that a lease of a batch was renewed for ttl.
func (s *Set) Renewed(seq uint64, id lease.ID, ttl lease.TTL) {
	l, sent, ok := s.answered(seq, id)
	if !ok {
		return
	}
	if l.group != nil && ttl != l.group.TTL {
		s.part(l)
	}
	l.TTL = ttl
	s.confirm(l, sent)
	if l.asked <= seq {
		l.asked, l.tries = 0, 0
		if l.group == nil {
			s.turn(l, s.renewAt(l, sent))
		}
	}
}

// Gone records that a lease of a batch no longer exists. A later batch cannot have found it,
// because a lease that is gone stays gone.
func (s *Set) Gone(seq uint64, id lease.ID) {
	if l, _, ok := s.answered(seq, id); ok {
		s.lose(l, Lost)
	}
}

// Unknown records that the renewal of a lease in a batch will not be answered. It is retried soon.
func (s *Set) Unknown(seq uint64, id lease.ID) {
	if l, _, ok := s.answered(seq, id); ok && l.asked == seq {
		s.again(l)
	}
}

// answered returns a lease of a batch, and when the batch was sent.
func (s *Set) answered(seq uint64, id lease.ID) (_ *held, sent instant, ok bool) {
	f := s.landed(seq)
	if f == nil {
		return nil, 0, false
	}
	l := s.leases[id]
	return l, f.sent, l != nil && l.since < seq
}

// landed records that a lease or a group of a batch has been answered, and returns the batch.
func (s *Set) landed(seq uint64) *flight {
	f := s.flights[seq]
	if f == nil {
		return nil
	}
	if f.left--; f.left == 0 {
		delete(s.flights, seq)
	}
	return f
}

// again schedules a retry for a lease whose renewal was not answered.
func (s *Set) again(l *held) {
	l.asked = 0
	if l.group != nil {
		return
	}
	s.turn(l, min(l.at[turns], s.backOff(l)))
}

// A lease is renewed after a third of its TTL, unless Config.RenewAfter is set, so that there is
// time for two more attempts before it ends. It is renewed up to a quarter earlier than that,
// depending on its ID. So when many holders start together, for example after a failure of the
// core, their renewals drift apart (T26).
const (
	renewPart    = 3
	jitterPart   = 4
	gatherPart   = 144
	retryPart    = 6
	firstBackOff = lease.TTL(4)
)

// renewAt returns when to renew a lease. sent is when the last acknowledged request was sent.
func (s *Set) renewAt(l *held, sent instant) instant {
	ttl := min(l.TTL, l.bound)
	after := ttl / renewPart
	if s.cfg.RenewAfter > 0 {
		after = lease.TTL(float64(ttl) * s.cfg.RenewAfter)
	}
	return max(s.now, plus(sent, after-share(after/jitterPart, uint64(l.ID))))
}

// retryAt returns when to resend a renewal that is being sent now, if it is not answered.
func (s *Set) retryAt(l *held) instant { return plus(s.now, s.patience(l, l.TTL/retryPart)) }

// backOff returns when to resend a failed renewal. The delay grows with each failure, and has
// jitter.
func (s *Set) backOff(l *held) instant {
	d := min(firstBackOff<<min(l.tries, 10), l.TTL/retryPart)
	d -= share(d/2, uint64(l.ID)+uint64(l.tries))
	return plus(s.now, s.patience(l, d))
}

// patience shortens a wait so that two attempts fit into the remaining validity or grace period.
// The result is at least 1, so that even a holder that is late pauses between retries.
func (s *Set) patience(l *held, d lease.TTL) lease.TTL {
	return max(1, min(d, lease.TTL(l.end()-s.now)/3))
}

// share returns a fraction of d that depends only on x. d must not be negative.
func share(d lease.TTL, x uint64) lease.TTL {
	hi, _ := bits.Mul64(x*0x9e3779b97f4a7c15, uint64(d))
	return lease.TTL(hi)
}
