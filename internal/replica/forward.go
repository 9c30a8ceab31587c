package replica

import (
	"cmp"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// patience is how long a command waits for a leader to accept it, in election timeouts.
const patience = 5

// maxForwarded is the maximum number of commands that can wait for another member. A separate limit
// of the same size applies to all other requests.
const maxForwarded = 1 << 16

// forwarder sends commands from this member's clients to another leader, and finds their outcome in
// the log.
//
// Commands are numbered as they are sent. The leader of a term accepts each number once and in
// order, so sending a command again is harmless. A command sent in a term enters the log in that
// term or not at all. So once an entry of a later term has been applied, any command that has not
// been applied is certainly lost, and can be sent to the new leader. The death of a leader leaves
// no command with an unknown outcome.
type forwarder struct {
	m     *local
	queue []*Proposal // not sent yet, or certain to be lost
	sent  []sent      // sorted by number; terms never decrease
	next  uint64      // number of the next command

	term     uint64 // term of the last command sent
	version  byte   // cluster version that the leader of term understands
	base     uint64 // first number used in term
	received uint64 // the leader of term has received every command with a lower number
	idle     int    // ticks since the leader last made progress
	over     int    // approximate number of rejected commands in sent
}

// sent is a command in flight. The proposal is nil once its client has been answered.
type sent struct {
	seq, term uint64
	at        lease.Instant // when it was first sent in this term
	command   fsm.Command
	proposal  *Proposal
}

func (f *forwarder) full() bool { return len(f.queue)+len(f.sent)-f.over >= maxForwarded }

// propose accepts a command, or rejects it if too many are waiting.
func (f *forwarder) propose(p *Proposal) {
	if f.full() {
		f.m.out.refuse(p, ErrOverloaded)
		return
	}
	f.queue = append(f.queue, p)
}

// again puts commands that are certain to be lost at the front of the queue.
func (f *forwarder) again(own []*Proposal) {
	if len(own) > 0 {
		f.queue = slices.Concat(own, f.queue)
	}
}

// begin starts the numbering of a new term.
func (f *forwarder) begin(term uint64) {
	f.term, f.base, f.received, f.idle = term, f.next, f.next, 0
	f.version = firstVersion
}

// send sends a message to the leader.
func (f *forwarder) send(msg *Forward) {
	f.m.send(&Message{To: f.m.leader, Version: f.version, Forward: msg})
}

// message returns an empty message to the leader of the term.
func (f *forwarder) message() Forward {
	return Forward{Term: f.term, First: f.next, Base: f.base}
}

// fill moves commands from the queue into msg. While the leader has not confirmed the previous
// commands, it adds none, unless groupMax are waiting. So commands that arrive in the meantime
// share the next message. Commands that require a version later than the first wait until the
// leader's version is known, because a leader that cannot decode a message discards all of it.
func (f *forwarder) fill(msg *Forward) {
	if f.received < f.next && len(f.queue) < groupMax {
		return
	}
	n := 0
	known := f.m.machine.Term() == f.term // whether the leader's version is known
	for n < len(f.queue) && n < groupMax && len(msg.body) < f.m.cfg.MaxBatch &&
		(known || has(f.version, f.queue[n].Command)) {
		p := f.queue[n]
		n++
		switch {
		case !has(f.version, p.Command):
			f.m.out.refuse(p, ErrVersion)
		case !msg.add(p.Command):
			f.m.out.refuse(p, ErrTooLarge)
		default:
			if p.Trace != nil {
				msg.Traces = append(msg.Traces, TracedCommand{f.next, *p.Trace})
			}
			f.sent = append(f.sent, sent{f.next, f.term, f.m.now, p.Command, p})
			f.next++
		}
	}
	f.queue = f.queue[n:]
}

// tick rejects commands that have waited too long, and resends commands that the leader does not
// seem to have received. The time that commands spend waiting for caches at the leader does not
// count.
func (f *forwarder) tick() {
	m := f.m
	limit := uint64(patience * m.cfg.ElectionTicks)
	caches := m.machine.CacheTTL()
	late := func(s *sent) bool {
		if m.leader != 0 && s.term == m.term && lease.TTL(m.now-s.at) < caches {
			s.proposal.born = m.ticks
		}
		return s.proposal.born+limit <= m.ticks
	}
	for len(f.queue) > 0 && f.queue[0].born+limit <= m.ticks {
		m.out.refuse(f.queue[0], ErrNoLeader)
		f.queue = f.queue[1:]
	}
	f.giveUp(late)
	if m.leading || m.leader == 0 || f.term != m.term || f.received == f.next {
		return
	}
	if f.idle++; f.idle >= 2*m.cfg.HeartbeatTicks {
		f.idle = 0
		f.resend()
	}
}

func (f *forwarder) resend() {
	msg := &Forward{Term: f.term, First: f.received, Base: f.base}
	i, _ := f.find(f.received)
	for ; i < len(f.sent) && len(msg.body) < f.m.cfg.MaxBatch; i++ {
		msg.add(f.sent[i].command)
		if p := f.sent[i].proposal; p != nil && p.Trace != nil {
			msg.Traces = append(msg.Traces, TracedCommand{f.sent[i].seq, *p.Trace})
		}
	}
	if len(msg.Commands) == 0 {
		f.received = f.next
		return
	}
	f.send(msg)
}

func (f *forwarder) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(f.sent, seq, func(s sent, seq uint64) int {
		return cmp.Compare(s.seq, seq)
	})
}

// reached records that the leader of term has received every command with a number below next.
func (f *forwarder) reached(term, next uint64) {
	if term == f.term && next > f.received && next <= f.next {
		f.received, f.idle = next, 0
	}
}

// refused handles the leader's rejections. A leader may reject many commands, so they are removed
// from sent in bulk, once they make up half of it.
func (f *forwarder) refused(list []Refusal) {
	for _, no := range list {
		if i, ok := f.find(no.Seq); ok && f.sent[i].proposal != nil {
			f.m.out.refuse(f.sent[i].proposal, no.Code.err())
			f.sent[i].proposal = nil
			f.over++
		}
	}
	if f.over > 0 && 2*f.over >= len(f.sent) {
		f.giveUp(func(*sent) bool { return false })
	}
}

// applied answers the commands in one group of an entry that were forwarded by this member.
func (f *forwarder) applied(term uint64, g fsm.Group, results []fsm.Result) {
	first, end := g.Origin.Seq, g.Origin.Seq+uint64(len(g.Commands))
	i, _ := f.find(first)
	// commands of an earlier incarnation, or whose client is no longer waiting, are not in sent
	k := i
	for ; k < len(f.sent) && f.sent[k].seq < end; k++ {
		if p := f.sent[k].proposal; p != nil {
			p.Result, p.Index = results[f.sent[k].seq-first], f.m.machine.Index()
			f.m.out.Proposals = append(f.m.out.Proposals, p)
		}
	}
	if k > i {
		f.sent = cut(f.sent, i, k)
		f.reached(term, end)
	}
}

// requeue puts back commands that are certain to be lost because an entry of term has been applied.
// They will be sent to the next leader.
func (f *forwarder) requeue(term uint64) {
	n := 0
	var again []*Proposal
	for ; n < len(f.sent) && f.sent[n].term < term; n++ {
		if p := f.sent[n].proposal; p != nil {
			again = append(again, p)
		}
	}
	if n > 0 {
		f.sent = slices.Clone(f.sent[n:])
		f.again(again)
	}
}

// swallowed rejects commands sent in term or earlier. Their outcome is unknown, because a snapshot
// replaced the entries.
func (f *forwarder) swallowed(term uint64) {
	f.giveUp(func(s *sent) bool { return s.term <= term })
}

// giveUp rejects the commands for which late returns true. Their outcome is unknown. A command
// whose client is no longer waiting is kept until the leader has received it, because the leader
// accepts numbers only in order.
func (f *forwarder) giveUp(late func(*sent) bool) {
	kept := f.sent[:0]
	for _, s := range f.sent {
		if s.proposal != nil && late(&s) {
			f.m.out.refuse(s.proposal, ErrLeaderChanged)
			s.proposal = nil
		}
		if s.proposal != nil || s.term == f.term && s.seq >= f.received {
			kept = append(kept, s)
		}
	}
	clear(f.sent[len(kept):])
	f.sent, f.over = kept, 0
}
