package replica

import (
	"cmp"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// patience is how many election timeouts a command waits, at most, for a
// leader that takes it; asks (reads and renewals) wait less long, so that
// a holder still has time to turn to another member.
const (
	patience     = 5
	patienceAsks = 3
)

// maxForwarded is how many commands, and how many asks, may wait for another
// member.
const maxForwarded = 1 << 16

// forwarder brings the commands of this member's clients to another leader,
// and finds their outcome in the log.
//
// Commands are numbered as they are sent. The leader of a term takes each
// number once and in order, so sending again is harmless; and since a command
// that is sent in a term enters the log in that term or never, those that
// are not applied when an entry of a later term is are lost for certain, and are
// sent again to the new leader. So a client never has to guess what became of
// his command because a leader died.
type forwarder struct {
	queue []*Proposal // not sent, or certain to have been lost
	sent  []sent      // by number; terms do not fall
	next  uint64      // the number of the next command

	term     uint64 // in which the last was sent
	version  byte   // of what it is asked in: its leader understands that
	base     uint64 // the first number of term
	received uint64 // the leader of term has all numbers below
	idle     int    // ticks since the leader told of progress
	over     int    // commands in sent that were refused, about
}

// sent is a command on its way. The proposal is nil once its client was answered.
type sent struct {
	seq, term uint64
	at        lease.Instant // when it was sent first in the term
	command   fsm.Command
	proposal  *Proposal
}

func (f *forwarder) full() bool { return len(f.queue)+len(f.sent)-f.over >= maxForwarded }

// dispatch hands what waits to the leader, if one is known.
func (r *Replica) dispatch() {
	if r.leading {
		r.adopt()
		return
	}
	if r.leader == 0 {
		return
	}
	if f := &r.forward; f.term != r.term {
		f.term, f.base, f.received, f.idle = r.term, f.next, f.next, 0
		f.version = firstVersion
		r.asks.rewind()
	}
	r.forward.version = max(r.forward.version, r.shared())
	for {
		m := Forward{Term: r.term, First: r.forward.next, Base: r.forward.base}
		r.forward.fill(r, &m)
		if len(m.body) <= r.cfg.MaxBatch { // a large command goes by itself
			r.asks.fill(&m, r.ticks)
		}
		if len(m.Commands) == 0 && m.Round == 0 && len(m.Abandoned) == 0 && !m.aboutCaches() {
			return
		}
		full := m // mostly there is nothing to send, and m stays on the stack
		r.send(&Message{To: r.leader, Forward: &full})
	}
}

// adopt takes what waits for a leader, now that it is this member.
func (r *Replica) adopt() {
	queue := r.forward.queue
	r.forward.queue = nil
	for _, p := range queue {
		r.enqueue(p)
	}
	r.asks.rewind()
	reads, renewals, batches := r.asks.reads, r.asks.renewals, r.asks.batches.take()
	r.asks.reads, r.asks.renewals = nil, nil
	for _, q := range reads {
		if q.Fill != nil {
			r.register(q.Fill, origin{Member: r.cfg.ID})
		}
	}
	r.reads.next.reads = append(r.reads.next.reads, reads...)
	r.reads.next.opens = append(r.reads.next.opens, r.asks.caches.opens...)
	r.asks.caches = cacheRelay{}
	for i := range renewals {
		r.Renew(renewals[i])
	}
	for _, b := range batches {
		r.RenewAll(b)
	}
}

// fill moves commands from the queue into m. While the leader has not told
// that it has the ones before, it holds back, so that what arrives meanwhile
// shares the next message. What the first version does not have waits until it is known what
// the leader understands: a message that it cannot read would take all that is in it with it.
func (f *forwarder) fill(r *Replica, m *Forward) {
	if f.received < f.next && len(f.queue) < groupMax {
		return
	}
	n := 0
	known := r.machine.Term() == f.term // what the leader understands
	for n < len(f.queue) && n < groupMax && len(m.body) < r.cfg.MaxBatch &&
		(known || fsm.Has(f.version, f.queue[n].Command)) {
		p := f.queue[n]
		n++
		switch {
		case !fsm.Has(f.version, p.Command):
			r.refuse(p, ErrVersion)
		case !m.add(p.Command):
			r.refuse(p, ErrTooLarge)
		default:
			f.sent = append(f.sent, sent{f.next, f.term, r.now, p.Command, p})
			f.next++
		}
	}
	f.queue = f.queue[n:]
}

// tick gives up on what has waited too long, and sends again what the leader
// seems not to have received. What the leader has may wait there for caches, and that
// is no part of the patience.
func (f *forwarder) tick(r *Replica) {
	limit := uint64(patience * r.cfg.ElectionTicks)
	caches := r.machine.CacheTTL()
	late := func(s *sent) bool {
		if r.leader != 0 && s.term == r.term && lease.TTL(r.now-s.at) < caches {
			s.proposal.born = r.ticks
		}
		return s.proposal.born+limit <= r.ticks
	}
	for len(f.queue) > 0 && f.queue[0].born+limit <= r.ticks {
		p := f.queue[0]
		f.queue = f.queue[1:]
		r.refuse(p, ErrNoLeader)
	}
	f.abandon(r, late)
	if r.leading || r.leader == 0 || f.term != r.term || f.received == f.next {
		return
	}
	if f.idle++; f.idle >= 2*r.cfg.HeartbeatTicks {
		f.idle = 0
		f.resend(r)
	}
}

func (f *forwarder) resend(r *Replica) {
	m := &Forward{Term: f.term, First: f.received, Base: f.base}
	i, _ := f.find(f.received)
	for ; i < len(f.sent) && len(m.body) < r.cfg.MaxBatch; i++ {
		m.add(f.sent[i].command)
	}
	if len(m.Commands) == 0 {
		f.received = f.next
		return
	}
	r.send(&Message{To: r.leader, Forward: m})
}

func (f *forwarder) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(f.sent, seq, func(s sent, seq uint64) int {
		return cmp.Compare(s.seq, seq)
	})
}

// reached notes that the leader of term has all numbers below next.
func (f *forwarder) reached(term, next uint64) {
	if term == f.term && next > f.received && next <= f.next {
		f.received, f.idle = next, 0
	}
}

// take returns the proposal of the command with a number, which the leader has refused; nil if
// nobody waits for it. The command goes with the others that are over, since a leader may refuse
// very many.
func (f *forwarder) take(seq uint64) *Proposal {
	i, ok := f.find(seq)
	if !ok || f.sent[i].proposal == nil {
		return nil
	}
	p := f.sent[i].proposal
	f.sent[i].proposal = nil
	f.over++
	return p
}

// sweep forgets the commands that were refused, once they are half of all.
func (f *forwarder) sweep(r *Replica) {
	if f.over > 0 && 2*f.over >= len(f.sent) {
		f.abandon(r, func(*sent) bool { return false })
	}
}

// applied answers the commands of one group of an entry, which came through
// this member.
func (f *forwarder) applied(r *Replica, term uint64, g fsm.Group, results []fsm.Result) {
	first, end := g.Origin.Seq, g.Origin.Seq+uint64(len(g.Commands))
	i, _ := f.find(first)
	k := i // some may be missing: those of an earlier life, and those nobody waits for
	for ; k < len(f.sent) && f.sent[k].seq < end; k++ {
		if p := f.sent[k].proposal; p != nil {
			p.Result = results[f.sent[k].seq-first]
			r.out.Proposals = append(r.out.Proposals, p)
		}
	}
	if k > i {
		f.sent = cut(f.sent, i, k)
		f.reached(term, end)
	}
}

// bury finds what is lost for certain because an entry of term is applied.
func (f *forwarder) bury(term uint64) {
	n := 0
	var again []*Proposal
	for ; n < len(f.sent) && f.sent[n].term < term; n++ {
		if p := f.sent[n].proposal; p != nil {
			again = append(again, p)
		}
	}
	if n > 0 {
		f.sent = slices.Clone(f.sent[n:])
		f.queue = slices.Concat(again, f.queue)
	}
}

// forget answers what was sent in term or before: a snapshot has taken the place
// of the entries, so what became of it is not known.
func (f *forwarder) forget(r *Replica, term uint64) {
	f.abandon(r, func(s *sent) bool { return s.term <= term })
}

// abandon answers those whom late picks that the outcome is not known. A command
// for which nobody waits is kept until the leader has it, because that takes no number
// before those below.
func (f *forwarder) abandon(r *Replica, late func(*sent) bool) {
	kept := f.sent[:0]
	for _, s := range f.sent {
		if s.proposal != nil && late(&s) {
			r.refuse(s.proposal, ErrLeaderChanged)
			s.proposal = nil
		}
		if s.proposal != nil || s.term == f.term && s.seq >= f.received {
			kept = append(kept, s)
		}
	}
	clear(f.sent[len(kept):])
	f.sent, f.over = kept, 0
}
