package replica

import (
	"cmp"
	"errors"
	"slices"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// remotes holds a leader's state for the other members, which forward requests to it.
type remotes struct {
	term    uint64
	list    []*remote // in ID order
	keepers Keeper    // number of Keepers assigned so far
}

// remote is the state that a leader keeps, during one term, for a member that forwards requests to
// it.
type remote struct {
	member uint64
	term   uint64
	// incarnations lists the incarnations of the member in this term. A restarted member starts
	// numbering its requests again, and messages from an earlier incarnation can arrive late, so
	// each incarnation is tracked separately.
	incarnations []incarnation
	now          int    // index of the incarnation that sent the last message
	reply        *Reply // next message to send
}

// incarnation is one process of a member that forwards requests.
type incarnation struct {
	base uint64 // first number that it used in the term
	next uint64 // number of the first command not received yet
	// keeper identifies the groups of leases that the member keeps alive for its clients. round is
	// the last round received from the member; each round is processed once.
	keeper Keeper
	round  uint64
}

// incarnation returns the incarnation of a member whose numbers start at base.
func (r *remotes) incarnation(m *remote, base uint64) *incarnation {
	m.now = slices.IndexFunc(m.incarnations, func(i incarnation) bool { return i.base == base })
	if m.now < 0 {
		m.now = len(m.incarnations)
		its := incarnation{base: base, next: base, keeper: firstMember + r.keepers}
		r.keepers++
		m.incarnations = append(m.incarnations, its)
	}
	return &m.incarnations[m.now]
}

// of returns the state for a member.
func (r *remotes) of(member uint64) *remote {
	i, ok := slices.BinarySearchFunc(r.list, member, func(m *remote, id uint64) int {
		return cmp.Compare(m.member, id)
	})
	if !ok {
		r.list = slices.Insert(r.list, i, &remote{member: member, term: r.term})
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

// take returns the reply that is ready for the member, or nil.
func (m *remote) take() *Message {
	if m.reply == nil {
		return nil
	}
	if len(m.incarnations) > 0 {
		m.reply.Next = m.incarnations[m.now].next
	}
	msg := &Message{To: m.member, Reply: m.reply}
	m.reply = nil
	return msg
}

// confirmed answers another member's round. The remaining times belong to the current leases, as of
// index applied, so the member must read the leases in that state as well. Otherwise it might read
// a different incarnation of a lease. If the member's next reply already holds a round, confirmed
// returns that reply, which must be sent first.
func (r *remotes) confirmed(q *Read, index, applied uint64, left []Left) (full *Message) {
	m := r.of(q.from)
	if m.reply != nil && m.reply.Round != 0 {
		full = m.take()
	}
	if len(q.Leases) > 0 {
		index = max(index, applied)
	}
	a := m.answer()
	a.Round, a.Index, a.Left, a.Filled = q.round, index, left, q.filled
	return full
}

// renewed answers another member's renewal. If the renewal has no outcome, no answer is sent, and
// the member will send the renewal again, perhaps to another leader.
func (r *remotes) renewed(n *Renewal, ttl lease.TTL, err error) {
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		return
	}
	a := r.of(n.from).answer()
	a.Renewed = append(a.Renewed, Renewed{Seq: n.seq, TTL: ttl, Code: codeOf(err)})
}

// renewedAll answers another member's renewals that were promised together, and that member's round
// of groups. The groups that leases joined are sent in the same reply as the outcome of the round,
// so the member receives both or neither. If the member's next reply already holds a round of
// groups, renewedAll returns that reply, which must be sent first.
func (r *remotes) renewedAll(b *Renewals) (full *Message) {
	m := r.of(b.from)
	if m.reply != nil && m.reply.GroupRound != 0 && b.Number != 0 {
		full = m.take()
	}
	a := m.answer()
	if b.Number != 0 {
		a.GroupRound, a.Groups = b.Number, b.Renewed
	}
	for i, ttl := range b.TTLs {
		if ttl == 0 {
			continue
		}
		n := Renewed{Seq: b.sent[i].Seq, TTL: ttl}
		if b.Joined != nil {
			n.Group = b.Joined[i]
		}
		a.Renewed = append(a.Renewed, n)
	}
	return full
}

// reportWaiting tells the member that relayed a renewal that the renewal is waiting at this leader.
// It can be waiting for the outcome of the lease's expiry or for the lease's own cache. The leader
// repeats the message whenever the member resends the renewal. Otherwise the member would
// eventually give up, as if there were no leader.
func (r *remotes) reportWaiting(n *Renewal) {
	if n.from != 0 {
		a := r.of(n.from).answer()
		a.Renewed = append(a.Renewed, Renewed{Seq: n.seq, Code: codeOf(errWaiting)})
	}
}

// opened answers another member's OpenCache.
func (r *remotes) opened(o *OpenCache) {
	a := r.of(o.from).answer()
	a.Opened = append(a.Opened, Opened{o.seq, codeOf(o.Err)})
}

// sendReplies sends each member the reply that is ready for it, in ID order.
func (l *leadership) sendReplies() {
	for _, m := range l.remotes.list {
		l.m.send(m.take())
	}
}

// forwarded handles requests from another member's clients. They are admitted like requests from
// local clients.
func (l *leadership) forwarded(from uint64, f *Forward) {
	m := l.remotes.of(from)
	now := l.remotes.incarnation(m, f.Base)
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
	l.forwardedRenewals(from, now, f)
	l.abandon(f.Abandoned)
	l.forwardedCaches(from, f)
	if f.Round != 0 {
		q := &Read{from: from, round: f.Round, Leases: f.Queries}
		for i := range f.Fills {
			ok := l.gate.fill(&f.Fills[i],
				directory.Origin{Member: from, Incarnation: f.Base, Number: f.Round})
			q.filled = append(q.filled, ok)
		}
		l.rounds.next.reads = append(l.rounds.next.reads, q)
	}
}

// forwardedRenewals renews another member's leases and groups. If the message contains a round, the
// leases join groups. Each round is processed only once, so that a repeated or late message cannot
// add a lease to a group without the member's knowledge.
func (l *leadership) forwardedRenewals(from uint64, now *incarnation, f *Forward) {
	n := len(f.Renewals)
	if n == 0 && f.Groups.Number == 0 || f.Groups.Number != 0 && f.Groups.Number <= now.round {
		return
	}
	b := &Renewals{
		IDs: make([]lease.ID, n), Tokens: make([]lease.Token, n), TTLs: make([]lease.TTL, n),
		from: from, sent: f.Renewals,
	}
	for i, a := range f.Renewals {
		b.IDs[i], b.Tokens[i] = a.ID, a.Token
	}
	if f.Groups.Number != 0 {
		now.round = f.Groups.Number
		b.Keeper, b.Round, b.Access = now.keeper, f.Groups, l.m.machine.Access()
		if f.Access != versionOf(b.Access) {
			// a state that differs from the current one, so that no lease joins
			b.Access = new(access.State)
		}
	}
	l.renewAll(b)
}

// versionOf returns a number, never 0, that identifies the state of users and roles, apart from
// their limits. It is the same on all members.
func versionOf(s *access.State) uint64 {
	if s.Enabled() {
		return 2*s.Revision() + 1
	}
	return 2 * s.Revision()
}

// forwardedCaches handles messages from another member's caches.
func (l *leadership) forwardedCaches(from uint64, f *Forward) {
	for i := range f.Acks {
		a := &f.Acks[i]
		l.gate.ack(&a.AckCache, directory.Origin{Member: from, Incarnation: f.Base, Number: a.Number})
	}
	for _, o := range f.Opens {
		l.rounds.next.opens = append(l.rounds.next.opens, OpenCache{
			ID: o.ID, Token: o.Token, Has: o.Has,
			from: from, incarnation: f.Base, seq: o.Number,
		})
	}
}
