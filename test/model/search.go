package model

import (
	"fmt"
	"hash/maphash"
	"slices"
)

// Found is the result of Search.
type Found struct {
	Worlds int
	// Early lists the steps that led to the end of a lease whose holder was still valid. It is nil
	// if that never happened.
	Early []string
	// These fields count the steps of each type.
	Elections, Checkpoints, Clearings, Expiries, Renewals int
}

// A step leads from one world to another.
type step struct {
	format string // takes up to two server numbers
	a, b   byte
}

// Search visits all worlds within the bounds in breadth-first order. It stops at the first lease
// that ends early.
func Search(b Bounds, f Fault) Found {
	s := &search{bounds: b, fault: f, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
	s.visit(first(), -1, step{})
	for at := 0; at < len(s.open) && s.found.Early == nil; at++ {
		w := s.open[at].world
		s.open[at].world = nil // only the trace is still needed
		s.next(w, at)
	}
	s.found.Worlds = len(s.seen)
	return s.found
}

// A place is a visited world and the step that led there.
type place struct {
	world  *world
	before int
	step   step
}

type search struct {
	bounds Bounds
	fault  Fault
	seed   maphash.Seed
	seen   map[uint64]struct{}
	open   []place
	found  Found
}

// visit adds a world unless the same world, possibly with its servers in another order, has been
// visited before. Worlds are compared by a 64-bit hash. Among a few million worlds, a collision has
// a probability of one in a million.
func (s *search) visit(w world, before int, by step) {
	w.normalize()
	h := s.hash(&w)
	if _, ok := s.seen[h]; ok {
		return
	}
	s.seen[h] = struct{}{}
	s.open = append(s.open, place{&w, before, by})
	if s.found.Early == nil && w.endedEarly() {
		s.found.Early = s.trace(len(s.open) - 1)
	}
}

// hash returns a hash that does not depend on the order of the servers.
func (s *search) hash(w *world) uint64 {
	type role struct {
		server  server
		renewal [maxRenewals]renewal // renewals received by this server
	}
	type rest struct {
		now, valid, crashes byte
		renewal             [maxRenewals]renewal // renewals not received by any server
		servers             [servers]uint64
	}
	all := rest{now: w.now, valid: w.valid, crashes: w.crashes}
	for i := range w.server {
		r := role{server: w.server[i]}
		for k, it := range w.renewal {
			switch int(it.at) {
			case 0:
				all.renewal[k] = it
			case i + 1:
				it.at = 1
				r.renewal[k] = it
			}
		}
		all.servers[i] = maphash.Comparable(s.seed, r)
	}
	slices.Sort(all.servers[:])
	return maphash.Comparable(s.seed, all)
}

// next visits all worlds one step away from w.
func (s *search) next(w *world, at int) {
	if w.now < s.bounds.Time {
		n := *w
		n.now++
		s.visit(n, at, step{"the clock ticks", 0, 0})
	}
	for i := range servers {
		s.raft(w, at, i)
		s.lease(w, at, i)
	}
	for k := range s.bounds.Renewals {
		s.renew(w, at, k)
	}
}

// raft visits the possible Raft steps of server i.
func (s *search) raft(w *world, at, i int) {
	me := &w.server[i]
	for j := range servers {
		if j == i {
			continue
		}
		other := &w.server[j]
		if term := max(me.term, other.term) + 1; !me.leader && term <= s.bounds.Terms &&
			me.upToDate(other) && me.length < s.bounds.Log {
			n := *w
			n.server[j].follow(term)
			won := &n.server[i]
			won.follow(term)
			won.leader = true
			won.append(entry{term: term, kind: elected})
			s.found.Elections++
			s.visit(n, at, step{"server %d is elected with the vote of server %d", byte(i), byte(j)})
		}
		if me.leader && other.term <= me.term {
			n := *w
			to, from := &n.server[j], &n.server[i]
			if to.term < me.term {
				to.follow(me.term)
			}
			to.log, to.length = from.log, from.length
			to.apply(w.now, max(to.commit, from.commit), s.fault)
			s.count(from)
			from.apply(w.now, from.length, s.fault) // two of the three servers have it
			s.visit(n, at, step{"server %d replicates its log to server %d", byte(i), byte(j)})
		}
	}
	if w.crashes < s.bounds.Crashes {
		n := *w
		n.crashes++
		was := n.server[i]
		n.server[i] = server{term: was.term, log: was.log, length: was.length}
		n.server[i].apply(w.now, was.commit, s.fault)
		s.visit(n, at, step{"server %d crashes and restarts", byte(i), 0})
	}
}

// upToDate reports whether the log of s is at least as up-to-date as the log of o (Raft, section
// 5.4.1).
func (s *server) upToDate(o *server) bool {
	a, b := s.last().term, o.last().term
	return a > b || a == b && s.length >= o.length
}

// lease visits the steps that server i takes to time the lease.
func (s *search) lease(w *world, at, i int) {
	me := &w.server[i]
	if !me.leader || !me.promoted || me.gone || me.expiring || me.length >= s.bounds.Log {
		return
	}
	if w.now >= me.expiry {
		n := *w
		n.server[i].expiring = true
		n.server[i].append(entry{me.term, expire, me.term})
		s.visit(n, at, step{"server %d decides to expire the lease", byte(i), 0})
		s.forward(w, at, i)
		return
	}
	if w.now-me.renewed >= silent && !me.checked && !me.checkpointing {
		n := *w
		n.server[i].checkpointing = true
		n.server[i].append(entry{me.term, checkpoint, me.expiry - w.now})
		s.visit(n, at, step{"server %d checkpoints the lease", byte(i), 0})
	}
}

// forward makes leaders of later terms propose an expiry decided by server i. It implements the
// fault Forward.
func (s *search) forward(w *world, at, i int) {
	for j, o := range w.server {
		if s.fault == Forward && o.leader && o.term > w.server[i].term && o.length < s.bounds.Log {
			n := *w
			n.server[j].append(entry{o.term, expire, o.term})
			s.visit(n, at, step{"server %d decides an expiry and server %d proposes it", byte(i), byte(j)})
		}
	}
}

// renew visits the possible outcomes of a renewal.
func (s *search) renew(w *world, at, k int) {
	r := w.renewal[k]
	switch {
	case r.sent == 0:
		n := *w
		n.renewal[k].sent = w.now
		s.visit(n, at, step{"the holder sends a renewal", 0, 0})
		return
	case r.at == 0:
		for i := range servers {
			s.receive(w, at, k, i)
		}
	default:
		s.confirm(w, at, k)
		s.acknowledge(w, at, k)
	}
	n := *w
	n.renewal[k] = renewal{}
	s.visit(n, at, step{"a renewal is lost", 0, 0})
}

// receive delivers the renewal to server i, which extends the lease if it is the leader.
func (s *search) receive(w *world, at, k, i int) {
	me := &w.server[i]
	if !me.leader || !me.promoted || me.gone || me.expiring || w.now >= me.expiry {
		return
	}
	n := *w
	to, r := &n.server[i], &n.renewal[k]
	r.at, r.term = byte(i)+1, me.term
	if (me.checked || me.checkpointing) && s.fault != NoClear {
		if me.length >= s.bounds.Log {
			return
		}
		to.append(entry{me.term, clearing, 0})
		r.clearing = to.length
	}
	to.expiry, to.renewed = max(to.expiry, w.now+ttl), w.now
	s.visit(n, at, step{"server %d receives the renewal", byte(i), 0})
}

// confirm makes another server confirm the leader that received the renewal.
func (s *search) confirm(w *world, at, k int) {
	r := w.renewal[k]
	if r.confirmed || !w.promised(r) {
		return
	}
	for j := range servers {
		if j != int(r.at)-1 && w.server[j].term <= r.term {
			n := *w
			n.server[j].follow(r.term)
			n.renewal[k].confirmed = true
			s.visit(n, at, step{"server %d's leadership is confirmed by server %d", r.at - 1, byte(j)})
		}
	}
}

// promised reports whether the server that received r has led without interruption since then.
func (w *world) promised(r renewal) bool {
	s := &w.server[r.at-1]
	return s.leader && s.promoted && s.term == r.term
}

// acknowledge delivers a successful answer to the holder.
func (s *search) acknowledge(w *world, at, k int) {
	r := w.renewal[k]
	me := &w.server[r.at-1]
	if !w.promised(r) || me.gone || me.expiring || me.commit < r.clearing ||
		!r.confirmed && s.fault != NoConfirm {
		return
	}
	n := *w
	n.valid = max(n.valid, r.sent+ttl)
	n.renewal[k] = renewal{}
	s.found.Renewals++
	s.visit(n, at, step{"server %d acknowledges the renewal sent at %d", r.at - 1, r.sent})
}

// count counts the entries that a leader is about to apply.
func (s *search) count(leader *server) {
	for _, e := range leader.log[leader.commit:leader.length] {
		switch e.kind {
		case checkpoint:
			s.found.Checkpoints++
		case clearing:
			s.found.Clearings++
		case expire:
			s.found.Expiries++
		}
	}
}

// trace returns the steps that led to a place.
func (s *search) trace(at int) []string {
	p := s.open[at]
	if p.before < 0 {
		return nil
	}
	// "%[3]s" uses up the arguments that a short format does not mention.
	text := fmt.Sprintf(p.step.format+"%[3]s", p.step.a, p.step.b, "")
	return append(s.trace(p.before), text)
}
