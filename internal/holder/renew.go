package holder

import (
	"math/bits"

	"leasehold.dev/lease"
)

// maxFlights bounds the batches that may be without an answer. Answers to older
// ones are ignored: they would be of no use.
const maxFlights = 1024

// Due returns up to most leases to renew now: those whose turn it is and, if there
// is any, those whose turn comes within the time to gather. ok is false if there is
// none.
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

// Ask returns a batch of one lease, whose turn has not come: it is to be renewed now,
// in a transaction, say. ok is false if the lease is not held.
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

// ask takes a lease into a batch.
func (s *Set) ask(l *held, b *Batch) {
	delete(s.leave, l.ID)
	l.batch = b.Seq
	s.tried(l, b)
	b.Leases = append(b.Leases, Ref{l.ID, l.Token})
}

// tried notes that a lease or a group is about to be renewed.
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

// depart notes that a batch is about to be sent.
func (s *Set) depart(b *Batch) {
	if n := len(b.Leases) + len(b.Groups); n > 0 {
		s.flights[b.Seq] = &flight{sent: s.now, left: n}
	}
	for ; len(s.flights) > maxFlights; s.oldest++ {
		delete(s.flights, s.oldest)
	}
}

// Renewed says that a lease of a batch was renewed, for ttl.
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

// Gone says that a lease of a batch was not there any more. That it was there at a
// later batch cannot be: what is gone stays gone.
func (s *Set) Gone(seq uint64, id lease.ID) {
	if l, _, ok := s.answered(seq, id); ok {
		s.lose(l, Lost)
	}
}

// Unknown says that a lease of a batch will get no other answer. It is tried again,
// soon.
func (s *Set) Unknown(seq uint64, id lease.ID) {
	if l, _, ok := s.answered(seq, id); ok && l.asked == seq {
		s.again(l)
	}
}

// answered finds the lease of a batch, and when that was sent.
func (s *Set) answered(seq uint64, id lease.ID) (_ *held, sent instant, ok bool) {
	f := s.landed(seq)
	if f == nil {
		return nil, 0, false
	}
	l := s.leases[id]
	return l, f.sent, l != nil && l.since < seq
}

// landed notes that a lease or a group of a batch has its answer.
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

// again lets a lease that got no answer wait for its next try.
func (s *Set) again(l *held) {
	l.asked = 0
	if l.group != nil {
		return
	}
	s.turn(l, min(l.at[turns], s.backOff(l)))
}

// A lease is renewed after a third of its TTL, unless Config.RenewAfter says otherwise, so
// that two more tries fit before it ends. Up to a quarter of that is taken off, by the ID:
// many holders that begin together, as after a failure of the core, drift apart (T26).
const (
	renewPart    = 3
	jitterPart   = 4
	gatherPart   = 144
	retryPart    = 6
	firstBackOff = lease.TTL(4)
)

// renewAt is when to renew a lease after an acknowledged promise that was asked for
// at sent.
func (s *Set) renewAt(l *held, sent instant) instant {
	ttl := min(l.TTL, l.bound)
	after := ttl / renewPart
	if s.cfg.RenewAfter > 0 {
		after = lease.TTL(float64(ttl) * s.cfg.RenewAfter)
	}
	return max(s.now, plus(sent, after-share(after/jitterPart, uint64(l.ID))))
}

// retryAt is when to send a renewal again that is sent now, if there is no answer.
func (s *Set) retryAt(l *held) instant { return plus(s.now, s.patience(l, l.TTL/retryPart)) }

// backOff is when to send a renewal again that has failed: later after each, with
// jitter.
func (s *Set) backOff(l *held) instant {
	d := min(firstBackOff<<min(l.tries, 10), l.TTL/retryPart)
	d -= share(d/2, uint64(l.ID)+uint64(l.tries))
	return plus(s.now, s.patience(l, d))
}

// patience cuts a wait so that two tries fit into what is left of the validity, or
// of the grace. It is never nothing: not even who is late tries without a pause.
func (s *Set) patience(l *held, d lease.TTL) lease.TTL {
	return max(1, min(d, lease.TTL(l.end()-s.now)/3))
}

// share is a part of d, which is not below 0, between none and all. It depends on x alone.
func share(d lease.TTL, x uint64) lease.TTL {
	hi, _ := bits.Mul64(x*0x9e3779b97f4a7c15, uint64(d))
	return lease.TTL(hi)
}
