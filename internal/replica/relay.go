package replica

import (
	"cmp"
	"errors"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// relay brings the reads and renewals of this member's clients to another
// leader: one confirm round at a time, for all that gathered meanwhile. The
// leader's own rounds serve it, so however many members and clients wait, one
// exchange of heartbeats does.
//
// Asking again is harmless: a read has no effect, and a renewal is good from
// when the leader received it, which is later than when the holder sent it (T2).
type relay struct {
	reads    []*Read   // for the next round
	renewals []Renewal // likewise
	current  *question // asked, not yet confirmed
	open     []asked   // renewals without an answer, by number, and some that have one
	over     int       // how many have
	batches  batchRelay
	done     []confirmed
	// abandoned are leases to be told of with the next message, if there still is a
	// leader then; more is not done about them.
	abandoned []lease.ID
	caches    cacheRelay
	last      uint64 // number given last, to a round, a renewal or what is about a cache
	idle      int    // ticks since current was asked
}

// question is a round that was asked for.
type question struct {
	id    uint64
	reads []*Read
	// queries are the leases that the reads ask about, one read after the other.
	queries []lease.ID
	// fills are those of the reads, in their order.
	fills []Fill
}

type asked struct {
	seq     uint64
	at      uint64 // the tick at which it was asked last
	renewal Renewal
	// answered says that it is of no interest any more: see relay.sweep.
	answered bool
}

// confirmed is a round that may be read when index is applied.
type confirmed struct {
	index uint64
	reads []*Read
}

func (a *relay) full() bool { return a.room() <= 0 }

// room is how many more asks may wait for the next round.
func (a *relay) room() int {
	return maxForwarded - len(a.reads) - len(a.renewals) - a.batches.leases - len(a.caches.opens)
}

// fill adds a round to m, if anybody waits and none is under way.
func (a *relay) fill(m *Forward, now uint64) {
	m.Abandoned, a.abandoned = a.abandoned, nil
	if a.caches.fill(m, a, now) {
		return // the round goes with the last of it
	}
	if a.current != nil || len(a.reads)+len(a.renewals)+len(a.batches.waiting) == 0 {
		return
	}
	a.last++
	q := &question{id: a.last}
	n, size := 0, 0
	for ; n < len(a.reads) && len(q.queries) < maxForwarded && size < maxCacheBytes; n++ {
		q.queries = append(q.queries, a.reads[n].Leases...)
		if f := a.reads[n].Fill; f != nil {
			q.fills = append(q.fills, *f)
			size += rangesSize(f.Ranges)
		}
	}
	q.reads, a.reads = a.reads[:n:n], a.reads[n:]
	for _, n := range a.renewals {
		a.last++
		a.open = append(a.open, asked{seq: a.last, at: now, renewal: n})
		m.Renewals = append(m.Renewals, Ask{a.last, n.ID, n.Token})
	}
	a.renewals = nil
	a.last = a.batches.fill(m, a.last, now)
	if len(a.reads) == 0 {
		a.reads = nil
	}
	a.current, a.idle = q, 0
	q.fill(m)
}

func (q *question) fill(m *Forward) {
	m.Round, m.Queries, m.Fills = q.id, q.queries, q.fills
}

// rewind takes back all that was asked, because another leader has to be.
func (a *relay) rewind() {
	a.abandoned = nil // a new leader knows of nobody who tends anything
	if a.current != nil {
		a.reads = slices.Concat(a.current.reads, a.reads)
		a.current = nil
	}
	if len(a.open) > 0 {
		renewals := make([]Renewal, 0, len(a.open)+len(a.renewals))
		for i := range a.open {
			if !a.open[i].answered {
				renewals = append(renewals, a.open[i].renewal)
			}
		}
		a.renewals = append(renewals, a.renewals...)
		a.open, a.over = nil, 0
	}
	a.renewals = append(a.renewals, a.batches.rewind()...)
	a.caches.rewind()
}

// tick gives up on what has waited too long, and asks again what seems lost.
func (a *relay) tick(r *Replica) {
	if len(a.reads)+len(a.renewals)+len(a.open)+len(a.done) == 0 && a.current == nil &&
		a.batches.empty() && a.caches.empty() {
		return
	}
	a.expire(r)
	if r.leading || r.leader == 0 || r.forward.term != r.term {
		return
	}
	m := &Forward{Term: r.term, First: r.forward.next, Base: r.forward.base}
	if a.current != nil {
		if a.idle++; a.idle >= 2*r.cfg.HeartbeatTicks {
			a.idle = 0
			a.current.fill(m)
		}
	}
	a.batches.again(a, r.ticks, uint64(r.cfg.ElectionTicks))
	for i := range a.open {
		if o := &a.open[i]; !o.answered && r.ticks-o.at >= uint64(r.cfg.ElectionTicks) {
			o.at = r.ticks
			m.Renewals = append(m.Renewals, Ask{o.seq, o.renewal.ID, o.renewal.Token})
		}
	}
	a.caches.again(m, r.ticks, uint64(r.cfg.ElectionTicks))
	if m.Round != 0 || len(m.Renewals) > 0 || len(m.Opens) > 0 {
		r.send(&Message{To: r.leader, Forward: m})
	}
}

// expire answers what has waited too long: nobody who leads is known, or can
// be reached, or what it has committed does not arrive.
func (a *relay) expire(r *Replica) {
	limit := uint64(patienceAsks * r.cfg.ElectionTicks)
	old := func(born uint64) bool { return born+limit <= r.ticks }
	stale := func(q *Read) bool {
		if !old(q.born) {
			return false
		}
		q.Err = ErrNoLeader
		r.out.Reads = append(r.out.Reads, q)
		return true
	}
	a.reads = slices.DeleteFunc(a.reads, stale)
	aged := func(q *Read) bool { return old(q.born) }
	if q := a.current; q != nil && slices.ContainsFunc(q.reads, aged) {
		// The round is given up as a whole, and those who are younger ask in the next.
		a.current = nil
		a.reads = slices.Concat(slices.DeleteFunc(q.reads, stale), a.reads)
	}
	for i := range a.done {
		a.done[i].reads = slices.DeleteFunc(a.done[i].reads, stale)
	}
	a.renewals = slices.DeleteFunc(a.renewals, func(n Renewal) bool {
		if old(n.born) {
			r.refuseRenewal(n, ErrNoLeader)
		}
		return old(n.born)
	})
	for i := range a.open {
		if o := &a.open[i]; old(o.renewal.born) {
			a.answer(r, i, 0, ErrNoLeader)
		}
	}
	a.sweep()
	a.batches.expire(r, old)
	a.caches.expire(r, old)
}

// stepReply takes the leader's answer.
func (r *Replica) stepReply(from uint64, m *Reply) {
	if r.leading || from != r.leader || m.Term != r.term {
		return // of a leader that is none any more
	}
	if m.AboutSlow {
		r.slow.set(r, m.Slow)
	}
	if m.Term != r.forward.term {
		return // it was asked in vain, or nothing
	}
	r.forward.reached(m.Term, m.Next)
	for _, f := range m.Refused {
		if p := r.forward.take(f.Seq); p != nil {
			r.refuse(p, f.Code.err())
		}
	}
	r.forward.sweep(r)
	r.asks.renewed(r, m)
	r.asks.caches.opened(r, m)
	r.out.Invalidations = append(r.out.Invalidations, m.Invalidations...)
	if m.Round != 0 {
		r.asks.confirmed(m)
	}
}

// renewed answers renewals, in one pass, since there may be very many.
func (a *relay) renewed(r *Replica, m *Reply) {
	if len(m.Renewed)+len(m.Batches) == 0 {
		return
	}
	waiting := codeOf(errWaiting)
	for _, n := range m.Renewed {
		i, ok := a.find(n.Seq)
		switch {
		case ok && n.Code == waiting:
			a.open[i].renewal.born = r.ticks // its patience is with who leads
		case n.Code == waiting: // of a batch, whose renewals are asked for by themselves soon
		case ok:
			a.answer(r, i, n.TTL, n.Code.err())
		default:
			a.batches.renewed(r, n)
		}
	}
	for i := range m.Batches {
		if b := &m.Batches[i]; !a.batches.renewedAll(r, b) {
			a.renewedAll(r, b)
		}
	}
	a.sweep()
	a.batches.close(a)
}

// find returns the place of the open renewal with a number.
func (a *relay) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(a.open, seq, func(o asked, seq uint64) int {
		return cmp.Compare(o.seq, seq)
	})
}

// answer answers the open renewal at a place.
func (a *relay) answer(r *Replica, i int, ttl lease.TTL, err error) {
	o := &a.open[i]
	if o.answered {
		return
	}
	o.answered = true
	a.over++
	o.renewal.TTL, o.renewal.Err = ttl, err
	r.out.Renewals = append(r.out.Renewals, o.renewal)
}

// sweep forgets the renewals that are answered, once they are half of all: many others may have
// to wait for long, and answers come in many replies.
func (a *relay) sweep() {
	if a.over > 0 && 2*a.over >= len(a.open) {
		a.open = slices.DeleteFunc(a.open, func(o asked) bool { return o.answered })
		a.over = 0
	}
}

func (a *relay) confirmed(m *Reply) {
	q := a.current
	if q == nil || q.id != m.Round || len(m.Left) != len(q.queries) ||
		len(m.Filled) != len(q.fills) {
		return
	}
	a.current = nil
	left, filled := m.Left, m.Filled
	for _, read := range q.reads {
		n := len(read.Leases)
		read.Left, left = left[:n:n], left[n:]
		if read.Fill == nil {
			continue
		}
		if read.Fill.Term = 0; filled[0] {
			read.Fill.Term = m.Term
		}
		filled = filled[1:]
	}
	if len(q.reads) > 0 {
		a.done = append(a.done, confirmed{m.Index, q.reads})
	}
}

// release answers the rounds whose index has been applied here.
func (a *relay) release(r *Replica) {
	n := 0
	for ; n < len(a.done) && a.done[n].index <= r.machine.Index(); n++ {
		for _, read := range a.done[n].reads {
			r.finish(read)
		}
	}
	a.done = a.done[n:]
}

// finish answers a read for which the state is new enough.
func (r *Replica) finish(q *Read) {
	if q.Inspect != nil {
		q.Inspect(r.lessor)
	}
	r.out.Reads = append(r.out.Reads, q)
}

// remote is what a leader keeps of a member that forwards to it, for a term.
type remote struct {
	member uint64
	term   uint64
	// lives are those of the member in this term: when it begins anew, so do its
	// numbers. Each is followed by itself, since what an earlier one sent may come late.
	lives []life
	now   int    // the one that was heard last
	reply *Reply // gathers what is to be sent
}

// life is one process of a member that forwards.
type life struct {
	base uint64 // its first number in the term
	next uint64 // number of the first command not received
}

// life returns the one whose numbers begin at base.
func (m *remote) life(base uint64) *life {
	m.now = slices.IndexFunc(m.lives, func(l life) bool { return l.base == base })
	if m.now < 0 {
		m.now = len(m.lives)
		m.lives = append(m.lives, life{base, base})
	}
	return &m.lives[m.now]
}

// remote returns the record of a member in the present term.
func (r *Replica) remote(member uint64) *remote {
	i, ok := slices.BinarySearchFunc(r.remotes, member, func(m *remote, id uint64) int {
		return cmp.Compare(m.member, id)
	})
	if !ok {
		r.remotes = slices.Insert(r.remotes, i, &remote{member: member, term: r.term})
	}
	if m := r.remotes[i]; m.term != r.term {
		*m = remote{member: member, term: r.term}
	}
	return r.remotes[i]
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

// stepForward takes what another member's clients ask of this leader. What
// comes is admitted as if its client were here: internal commands are refused
// whoever sends them (T1).
func (r *Replica) stepForward(from uint64, f *Forward) {
	if !r.leading || f.Term != r.term {
		return // the member will learn who leads, and ask that one
	}
	m := r.remote(from)
	l := m.life(f.Base)
	for i, c := range f.Commands {
		if seq := f.First + uint64(i); seq == l.next {
			l.next++
			r.admit(&Proposal{Command: c, origin: fsm.Origin{Member: from, Seq: seq}, born: r.ticks})
		}
	}
	if len(f.Commands) > 0 {
		m.answer()
	}
	for _, a := range f.Renewals {
		r.Renew(Renewal{ID: a.ID, Token: a.Token, from: from, seq: a.Seq})
	}
	for i := range f.Batches {
		r.RenewAll(f.Batches[i].renewals(from))
	}
	r.Abandon(f.Abandoned)
	r.stepCaches(from, f)
	if f.Round != 0 {
		q := &Read{from: from, round: f.Round, Leases: f.Queries, born: r.ticks}
		for i := range f.Fills {
			ok := r.register(&f.Fills[i], origin{from, f.Base, f.Round})
			q.filled = append(q.filled, ok)
		}
		r.reads.next.reads = append(r.reads.next.reads, q)
	}
}

// reply sends each member what is ready for it, in the order of their IDs.
func (r *Replica) reply() {
	for _, m := range r.remotes {
		if m.reply != nil && m.term == r.term && r.leading {
			r.sendReply(m)
		}
		m.reply = nil
	}
}

func (r *Replica) sendReply(m *remote) {
	if len(m.lives) > 0 {
		m.reply.Next = m.lives[m.now].next
	}
	r.send(&Message{To: m.member, Reply: m.reply})
	m.reply = nil
}

// finishRemote answers another member's round. What is left of leases is as of now, so the
// member looks at them as of now too: another life of one is not to be taken for it.
func (r *Replica) finishRemote(q *Read, index uint64) {
	m := r.remote(q.from)
	a := m.answer()
	if a.Round != 0 { // one round to a reply
		r.sendReply(m)
		a = m.answer()
	}
	if len(q.Leases) > 0 {
		index = max(index, r.machine.Index())
	}
	a.Round, a.Index, a.Left, a.Filled = q.round, index, r.left(q.Leases), q.filled
}

// renewedRemote answers another member's renewal. What has no outcome is not
// answered: the member will ask again, perhaps another leader.
func (r *Replica) renewedRemote(n Renewal) {
	if !r.leading || n.Err != nil && !errors.Is(n.Err, lease.ErrNotFound) {
		return
	}
	a := r.remote(n.from).answer()
	a.Renewed = append(a.Renewed, Renewed{n.seq, n.TTL, codeOf(n.Err)})
}

// renewedAllRemote is renewedRemote for those of a batch that were promised together.
func (r *Replica) renewedAllRemote(b *Renewals) {
	if r.leading {
		a := r.remote(b.from).answer()
		a.Batches = append(a.Batches, RenewedAll{b.first, b.TTLs})
	}
}
