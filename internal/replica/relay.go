package replica

import "slices"

// unanswered is what clients of this member ask for, on their way from one leader to the next.
type unanswered struct {
	commands []*Proposal
	reads    []*Read
	renewals []Renewal
	batches  []*Renewals
	opens    []OpenCache
	groups   []*Renewals // whose groups are over
}

// own returns those commands that clients of this member gave. A member whose clients' commands do
// not get into the log finds that out by itself, and nobody waits for the leader's own.
func own(all []*Proposal) (own []*Proposal) {
	for _, p := range all {
		if p.internal == nil && p.origin.Member == 0 {
			p.write = nil
			own = append(own, p)
		}
	}
	return own
}

// unconfirmed adds what a confirm round would have served. Its promises are forgotten.
func (q *unanswered) unconfirmed(b *round) {
	for _, read := range b.reads {
		if read.from != 0 {
			continue
		}
		if read.Fill != nil {
			read.Fill.Term = 0
		}
		q.reads = append(q.reads, read)
	}
	for _, o := range b.opens {
		if o.from == 0 {
			q.opens = append(q.opens, o)
		}
	}
	q.renewals = append(q.renewals, b.renewals...)
	for _, all := range b.together {
		q.unconfirmedBatch(all)
	}
}

// unconfirmedBatch adds a batch of which something is promised, and not released: as one, if all
// is.
func (q *unanswered) unconfirmedBatch(b *Renewals) {
	if b.from != 0 {
		return // the member that relayed it will ask the next leader
	}
	q.groups = append(q.groups, b)
	if b.Kept == len(b.IDs) {
		clear(b.TTLs)
		b.Kept = 0
		q.batches = append(q.batches, b)
		return
	}
	q.renewals = append(q.renewals, b.split()...)
}

// ownRenewals drops the renewals of other members' clients, and takes all promises back.
func (q *unanswered) ownRenewals() {
	q.renewals = slices.DeleteFunc(q.renewals, func(n Renewal) bool { return n.from != 0 })
	for i := range q.renewals {
		q.renewals[i].TTL, q.renewals[i].token = 0, 0
	}
}

// relay sends what clients of this member ask for to another member, which leads, and answers them
// by its word or by the log. While this member leads itself the relay keeps only what was sent
// before and has no outcome yet.
type relay struct {
	m        *local
	commands forwarder
	asks     asker
}

// newRelay returns a relay whose numbers begin at first.
func newRelay(m *local, first uint64) relay {
	return relay{m: m, commands: forwarder{m: m, next: first}, asks: asker{m: m, last: first}}
}

// send sends what waits to the leader, if one is known.
func (r *relay) send() {
	if r.m.leader == 0 {
		return
	}
	if r.commands.term != r.m.term {
		r.commands.begin(r.m.term)
		r.asks.rewind()
	}
	r.commands.version = max(r.commands.version, r.m.version())
	for {
		msg := r.commands.message()
		r.commands.fill(&msg)
		if len(msg.body) <= r.m.cfg.MaxBatch { // a large command goes by itself
			r.asks.fill(&msg, r.m.ticks)
		}
		if len(msg.Commands) == 0 && msg.Round == 0 && len(msg.Abandoned) == 0 &&
			!msg.aboutCaches() {
			return
		}
		full := msg // mostly there is nothing to send, and msg stays on the stack
		r.commands.send(&full)
	}
}

// tick gives up on what has waited too long, and sends again what seems lost.
func (r *relay) tick() {
	r.commands.tick()
	if r.asks.empty() {
		return
	}
	r.asks.expire()
	if r.m.leading || r.m.leader == 0 || r.commands.term != r.m.term {
		return
	}
	msg := r.commands.message()
	if r.asks.again(&msg); msg.Round != 0 || len(msg.Renewals) > 0 || len(msg.Opens) > 0 {
		full := msg
		r.commands.send(&full)
	}
}

// answered takes an answer of the leader of the present term.
func (r *relay) answered(reply *Reply) {
	r.commands.reached(reply.Term, reply.Next)
	r.commands.refused(reply.Refused)
	r.asks.renewed(reply)
	r.asks.caches.opened(&r.m.out, reply)
	r.m.out.Invalidations = append(r.m.out.Invalidations, reply.Invalidations...)
	if reply.Round != 0 {
		r.asks.confirmed(reply)
	}
}

// take returns what waits for a leader, since that is this member now.
func (r *relay) take() unanswered {
	all := r.asks.take()
	all.commands, r.commands.queue = r.commands.queue, nil
	return all
}

// give takes what this member has not done as a leader, since it leads no more.
func (r *relay) give(all unanswered) {
	for _, b := range all.groups {
		b.Renewed, b.Joined = nil, nil
		r.m.out.noGroups(b)
	}
	r.commands.again(all.commands)
	r.asks.give(all)
}
