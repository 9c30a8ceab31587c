package replica

import (
	"cmp"
	"errors"
	"slices"

	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// remotes are the other members, as far as a leader answers what they forward to it.
type remotes struct {
	m    *local
	list []*remote // in ID order
}

// remote is what a leader keeps of a member that forwards to it, for a term.
type remote struct {
	member uint64
	term   uint64
	// incarnations are the member's in this term: when it begins anew, so do its
	// numbers. Each is followed by itself, since what an earlier one sent may come late.
	incarnations []incarnation
	now          int    // the one that was heard last
	reply        *Reply // what is to be sent
}

// incarnation is one process of a member that forwards.
type incarnation struct {
	base uint64 // its first number in the term
	next uint64 // number of the first command not received
}

// incarnation returns the one whose numbers begin at base.
func (m *remote) incarnation(base uint64) *incarnation {
	m.now = slices.IndexFunc(m.incarnations, func(i incarnation) bool { return i.base == base })
	if m.now < 0 {
		m.now = len(m.incarnations)
		m.incarnations = append(m.incarnations, incarnation{base, base})
	}
	return &m.incarnations[m.now]
}

// of returns the record of a member.
func (r *remotes) of(member uint64) *remote {
	i, ok := slices.BinarySearchFunc(r.list, member, func(m *remote, id uint64) int {
		return cmp.Compare(m.member, id)
	})
	if !ok {
		r.list = slices.Insert(r.list, i, &remote{member: member, term: r.m.term})
	}
	return r.list[i]
}

func (m *remote) answer() *Reply {
	if m.reply == nil {
		m.reply = &Reply{Term: m.term}
	}
	return m.reply
}

func (m *remote) refuse(seq uint64, err error) {
	a := m.answer()
	a.Refused = append(a.Refused, Refusal{seq, codeOf(err)})
}

// send sends each member what is ready for it, in the order of their IDs.
func (r *remotes) send() {
	for _, m := range r.list {
		if m.reply != nil {
			r.sendTo(m)
		}
	}
}

func (r *remotes) sendTo(m *remote) {
	if len(m.incarnations) > 0 {
		m.reply.Next = m.incarnations[m.now].next
	}
	r.m.send(&Message{To: m.member, Reply: m.reply})
	m.reply = nil
}

// confirmed answers another member's round. What is left of leases is as of now, so the
// member looks at them as of now too: another incarnation of one is not to be taken for it.
func (r *remotes) confirmed(q *Read, index uint64, left []Left) {
	m := r.of(q.from)
	a := m.answer()
	if a.Round != 0 { // one round to a reply
		r.sendTo(m)
		a = m.answer()
	}
	if len(q.Leases) > 0 {
		index = max(index, r.m.machine.Index())
	}
	a.Round, a.Index, a.Left, a.Filled = q.round, index, left, q.filled
}

// renewed answers another member's renewal. What has no outcome is not
// answered: the member will ask again, perhaps another leader.
func (r *remotes) renewed(n *Renewal, ttl lease.TTL, err error) {
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		return
	}
	a := r.of(n.from).answer()
	a.Renewed = append(a.Renewed, Renewed{n.seq, ttl, codeOf(err)})
}

// renewedAll answers those renewals of another member's batch that were promised together.
func (r *remotes) renewedAll(b *Renewals) {
	a := r.of(b.from).answer()
	a.Batches = append(a.Batches, RenewedAll{b.first, b.TTLs})
}

// sayWaiting tells the member that relayed a renewal, each time that it asks, that the renewal
// waits here: for the lease's end, which waits for a cache, or for the lease's own cache. Else
// the member would find after a while that nobody leads.
func (r *remotes) sayWaiting(n *Renewal) {
	if n.from != 0 {
		a := r.of(n.from).answer()
		a.Renewed = append(a.Renewed, Renewed{n.seq, 0, codeOf(errWaiting)})
	}
}

// opened answers another member's OpenCache.
func (r *remotes) opened(o *OpenCache) {
	a := r.of(o.from).answer()
	a.Opened = append(a.Opened, Opened{o.seq, codeOf(o.Err)})
}

// forwarded takes what another member's clients ask of this leader. It is admitted as if its client
// were here.
func (l *leadership) forwarded(from uint64, f *Forward) {
	m := l.remotes.of(from)
	now := m.incarnation(f.Base)
	for i, c := range f.Commands {
		if seq := f.First + uint64(i); seq == now.next {
			now.next++
			p := &Proposal{Command: c, origin: fsm.Origin{Member: from, Seq: seq}}
			if t := f.trace(seq); t != nil {
				p.Trace, p.Arrived = t, f.Arrived
			}
			if refuse := l.m.cfg.RefuseForwarded; refuse != nil && refuse() {
				l.refuse(p, ErrOverloaded)
				continue
			}
			l.propose(p)
		}
	}
	if len(f.Commands) > 0 {
		m.answer()
	}
	for _, a := range f.Renewals {
		l.renew(Renewal{ID: a.ID, Token: a.Token, from: from, seq: a.Seq})
	}
	for i := range f.Batches {
		l.renewAll(f.Batches[i].renewals(from))
	}
	l.abandon(f.Abandoned)
	l.forwardedCaches(from, f)
	if f.Round != 0 {
		q := &Read{from: from, round: f.Round, Leases: f.Queries}
		for i := range f.Fills {
			ok := l.gate.fill(&f.Fills[i],
				directory.Origin{Member: from, Incarnation: f.Base, Number: f.Round})
			q.filled = append(q.filled, ok)
		}
		l.rounds.Next.reads = append(l.rounds.Next.reads, q)
	}
}

// forwardedCaches takes what another member's caches say.
func (l *leadership) forwardedCaches(from uint64, f *Forward) {
	for i := range f.Acks {
		a := &f.Acks[i]
		l.gate.ack(&a.AckCache, directory.Origin{Member: from, Incarnation: f.Base, Number: a.Number})
	}
	for _, o := range f.Opens {
		l.rounds.Next.opens = append(l.rounds.Next.opens, OpenCache{
			ID: o.ID, Token: o.Token, Has: o.Has,
			from: from, incarnation: f.Base, seq: o.Number,
		})
	}
}
