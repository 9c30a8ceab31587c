package replica

import "slices"

// unanswered holds requests from this member's clients while they move from one leader to the next.
type unanswered struct {
	commands []*Proposal
	reads    []*Read
	renewals []Renewal
	opens    []OpenCache
	groups   []*Renewals // their groups have ended
}

// own returns the commands from this member's clients. The other members find out for themselves
// that their clients' commands did not enter the log. No client waits for the leader's own
// commands.
func own(all []*Proposal) (own []*Proposal) {
	for _, p := range all {
		if p.internal == nil && p.origin.Member == 0 {
			p.write = nil
			own = append(own, p)
		}
	}
	return own
}

// unconfirmed adds the requests of a confirm round that did not complete. Its promises are dropped.
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
		q.groups = append(q.groups, all)
		q.renewals = append(q.renewals, all.split()...)
	}
}

// ownRenewals drops the renewals of other members' clients, because those members will send them to
// the next leader. It also withdraws all promises.
func (q *unanswered) ownRenewals() {
	q.groups = slices.DeleteFunc(q.groups, func(b *Renewals) bool { return b.from != 0 })
	q.renewals = slices.DeleteFunc(q.renewals, func(n Renewal) bool { return n.from != 0 })
	for i := range q.renewals {
		q.renewals[i].TTL, q.renewals[i].token = 0, 0
	}
}

// relay sends requests from this member's clients to the leader if another member leads. They are
// answered by replies or through the log. While this member leads, the relay holds only requests
// that were sent earlier and have no outcome yet.
type relay struct {
	m        *local
	commands forwarder
	asks     asker
}

// newRelay returns a relay that numbers its requests from first.
func newRelay(m *local, first uint64) relay {
	return relay{
		m: m, commands: forwarder{m: m, next: first},
		asks: asker{m: m, last: first, firstRound: first},
	}
}

// send sends waiting requests to the leader, if one is known.
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
		if len(msg.body) <= r.m.cfg.MaxBatch { // a large command is sent alone
			r.asks.fill(&msg, r.m.ticks)
		}
		if len(msg.Commands) == 0 && msg.Round == 0 && msg.Groups.Number == 0 &&
			len(msg.Abandoned) == 0 && !msg.aboutCaches() {
			return
		}
		full := msg // usually there is nothing to send, and msg can stay on the stack
		r.commands.send(&full)
	}
}

// tick rejects requests that have waited too long, and resends requests that seem to be lost.
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

// answered handles a reply from the leader of the current term.
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

// take removes and returns the requests that wait for a leader, because this member has become the
// leader.
func (r *relay) take() unanswered {
	all := r.asks.take()
	all.commands, r.commands.queue = r.commands.queue, nil
	return all
}

// give accepts the requests that this member left unanswered when it stopped leading.
func (r *relay) give(all unanswered) {
	for _, b := range all.groups {
		b.Renewed, b.Joined = nil, nil
		r.m.out.noGroups(b)
	}
	r.commands.again(all.commands)
	r.asks.give(all)
}
