package replica

import (
	"cmp"
	"maps"
	"slices"

	"leasehold.dev/internal/holder"
	"leasehold.dev/lease"
)

// askTimeouts is how long reads and renewals wait for a leader, in election timeouts. It is
// smaller than patience, the limit for commands, so that a holder still has time to try another
// member.
const askTimeouts = 3

// asker forwards reads and renewals from this member's clients, and messages from its caches, to
// the leader. It requests one confirm round at a time. Each round covers everything that arrived
// during the previous one. Independently, it sends one round of groups at a time (see
// holder.Agent). The leader answers both kinds of round after its own confirm rounds, so one
// exchange of heartbeats suffices for any number of members and clients.
//
// Sending a request again is harmless. A read has no effect. A renewed lease's time counts from
// when the leader received the renewal, which is after the holder sent it (T2).
type asker struct {
	m        *local
	reads    []*Read         // for the next round
	renewals []Renewal       // for the next round
	current  *confirmRequest // sent but not yet confirmed
	open     []asked         // renewals that were sent, sorted by number; some have been answered
	over     int             // number of answered entries in open
	// agent keeps the leases of this member's clients alive. round holds the leases that are to
	// join groups in the round in progress. The round numbers sent to the leader start above
	// firstRound, which differs in each incarnation of the member.
	agent      holder.Agent[struct{}, Renewal]
	round      []Ask
	roundAt    uint64 // tick at which round was sent
	rounds     uint64 // number of rounds sent
	firstRound uint64
	done       []confirmed
	// abandoned holds the leases to report as abandoned in the next message. If no leader is known
	// at that time, they are not reported. The report may also be lost.
	abandoned []lease.ID
	// gone holds the abandoned leases that may still join a group, each with the last round in
	// which it can join. A lease that does join is removed from its group again.
	gone   map[lease.ID]uint64
	caches cacheRelay
	last   uint64 // last number assigned to a round, renewal or cache message
	idle   int    // ticks since current was sent
}

// confirmRequest is a confirm round that was requested from the leader.
type confirmRequest struct {
	id    uint64
	reads []*Read
	// queries lists the leases that the reads ask about, grouped by read.
	queries []lease.ID
	// fills lists the fills of the reads, in order.
	fills []Fill
}

type asked struct {
	seq     uint64
	at      uint64 // tick at which it was last sent
	renewal Renewal
	// answered marks an entry that asker.sweep can remove.
	answered bool
}

// confirmed is a round whose reads can run once index has been applied.
type confirmed struct {
	index uint64
	reads []*Read
}

func (a *asker) full() bool { return a.room() <= 0 }

// room returns how many more requests can wait for the next round.
func (a *asker) room() int {
	waiting := len(a.reads) + len(a.renewals) + a.agent.Waiting() + len(a.caches.opens)
	return maxForwarded - waiting
}

// fill adds a round to m if requests are waiting and no round is in progress.
func (a *asker) fill(m *Forward, now uint64) {
	m.Abandoned, a.abandoned = a.abandoned, nil
	var more bool
	if a.last, more = a.caches.fill(m, a.last, now); more {
		return // the last message carries the round
	}
	a.fillRenewals(m, now)
	if a.current != nil || len(a.reads) == 0 {
		return
	}
	a.last++
	q := &confirmRequest{id: a.last}
	n, size := 0, 0
	for ; n < len(a.reads) && len(q.queries) < maxForwarded && size < maxCacheBytes; n++ {
		q.queries = append(q.queries, a.reads[n].Leases...)
		if f := a.reads[n].Fill; f != nil {
			q.fills = append(q.fills, *f)
			size += rangesSize(f.Ranges)
		}
	}
	q.reads, a.reads = a.reads[:n:n], a.reads[n:]
	if len(a.reads) == 0 {
		a.reads = nil
	}
	a.current, a.idle = q, 0
	q.fill(m)
}

// fillRenewals adds a round of groups to m, together with the renewals of leases that are in no
// group. It does nothing if no renewals are due or a round is in progress.
func (a *asker) fillRenewals(m *Forward, now uint64) {
	if len(a.renewals) > 0 {
		a.agent.Want()
	}
	r, ok := a.agent.Next(a.m.now)
	if !ok {
		return
	}
	a.rounds = r.Number
	r.Number += a.firstRound
	m.Groups, m.Access = r, versionOf(a.m.machine.Access())
	for _, n := range a.renewals {
		a.last++
		a.open = append(a.open, asked{seq: a.last, at: now, renewal: n})
		m.Renewals = append(m.Renewals, Ask{a.last, n.ID, n.Token})
		if n.Access != a.m.machine.Access() {
			// no lease joins a group, because this lease's caller may have lost its permission
			m.Access = 0
		}
	}
	a.renewals, a.round, a.roundAt = nil, m.Renewals, now
}

// resetGroups ends all groups. Renewals that were waiting for a round will be sent individually.
func (a *asker) resetGroups() {
	for _, x := range a.agent.Reset() {
		a.renewals = append(a.renewals, x.Of)
	}
	a.round = nil
}

func (q *confirmRequest) fill(m *Forward) {
	m.Round, m.Queries, m.Fills = q.id, q.queries, q.fills
}

// rewind takes back all requests that were sent to the leader, so that they can be sent to another
// one.
func (a *asker) rewind() {
	a.abandoned = nil // a new leader treats these leases as untended anyway
	if a.current != nil {
		a.reads = slices.Concat(a.current.reads, a.reads)
		a.current = nil
	}
	var renewals []Renewal
	for i := range a.open {
		if !a.open[i].answered {
			renewals = append(renewals, a.open[i].renewal)
		}
	}
	a.open, a.over = nil, 0
	a.resetGroups()
	a.renewals = slices.Concat(renewals, a.renewals)
	a.caches.rewind()
}

// take removes and returns all requests, because this member has become the leader.
func (a *asker) take() unanswered {
	a.rewind()
	all := unanswered{reads: a.reads, renewals: a.renewals, opens: a.caches.opens}
	a.reads, a.renewals, a.caches = nil, nil, cacheRelay{}
	return all
}

// give accepts the requests that this member left unanswered when it stopped leading.
func (a *asker) give(all unanswered) {
	a.reads = append(a.reads, all.reads...)
	a.caches.opens = append(a.caches.opens, all.opens...)
	a.renewals = append(a.renewals, all.renewals...)
}

// renew accepts a renewal, or rejects it if too many requests are waiting. The agent treats all
// clients of this member as a single holder. When a client disconnects, its leases leave their
// groups. They join again if another client keeps them alive.
func (a *asker) renew(n Renewal) {
	delete(a.gone, n.ID)
	switch {
	case a.full():
		a.m.out.renewed(n, 0, ErrOverloaded)
	case a.agent.Keeps(struct{}{}, n.ID, n.Token) > 0:
		a.agent.Renew(a.m.now, n.ID, n)
	default:
		a.renewals = append(a.renewals, n)
	}
}

// openCache accepts an OpenCache, or rejects it if too many requests are waiting.
func (a *asker) openCache(o OpenCache) {
	if a.full() {
		a.m.out.refuseOpen(o, ErrOverloaded)
		return
	}
	a.caches.opens = append(a.caches.opens, o)
}

// ack accepts an acknowledgement if there is room. Acknowledgements may be lost.
func (a *asker) ack(c AckCache) {
	if len(a.caches.acks) < maxForwarded {
		a.caches.acks = append(a.caches.acks, c)
	}
}

// read accepts a read, or rejects it if too many requests are waiting.
func (a *asker) read(q *Read) {
	if a.full() {
		a.m.out.refuseRead(q, ErrOverloaded)
		return
	}
	a.reads = append(a.reads, q)
}

// abandon records leases that are no longer kept alive. If a leader is known, it will be informed
// of those that are not in a group.
func (a *asker) abandon(ids []lease.ID) {
	for _, id := range ids {
		if a.agent.Leave(struct{}{}, id) || a.m.leader == 0 {
			continue
		}
		if len(a.abandoned) < maxForwarded {
			a.abandoned = append(a.abandoned, id)
		}
		if len(a.renewals)+len(a.round) > 0 && len(a.gone) < maxForwarded {
			if a.gone == nil {
				a.gone = make(map[lease.ID]uint64)
			}
			a.gone[id] = a.rounds + 1 // leases that are waiting now can join in this round
		}
	}
}

// next returns when the next lease with a silent holder must leave its group. It returns false if
// no leader is known.
func (a *asker) next() (lease.Instant, bool) {
	if a.m.leader == 0 || a.agent.Pending() {
		return 0, false
	}
	return a.agent.SilentAt()
}

// empty reports whether no request is waiting, either for the leader or for a confirmed index to be
// applied.
func (a *asker) empty() bool {
	return len(a.reads)+len(a.renewals)+len(a.open)+len(a.done)+a.agent.Waiting() == 0 &&
		a.current == nil && !a.agent.Pending() && a.caches.empty()
}

// again adds to msg the requests that seem to have been lost.
func (a *asker) again(msg *Forward) {
	now, patience := a.m.ticks, uint64(a.m.cfg.ElectionTicks)
	if a.current != nil {
		if a.idle++; a.idle >= 2*a.m.cfg.HeartbeatTicks {
			a.idle = 0
			a.current.fill(msg)
		}
	}
	for i := range a.open {
		if o := &a.open[i]; !o.answered && now-o.at >= patience {
			o.at = now
			msg.Renewals = append(msg.Renewals, Ask{o.seq, o.renewal.ID, o.renewal.Token})
		}
	}
	a.caches.again(msg, now, patience)
}

// expire answers requests that have waited too long, because no leader is known, the leader cannot
// be reached, or its committed entries do not arrive.
func (a *asker) expire() {
	out := &a.m.out
	limit := uint64(askTimeouts * a.m.cfg.ElectionTicks)
	old := func(born uint64) bool { return born+limit <= a.m.ticks }
	stale := func(q *Read) bool {
		if !old(q.born) {
			return false
		}
		out.refuseRead(q, ErrNoLeader)
		return true
	}
	a.reads = slices.DeleteFunc(a.reads, stale)
	aged := func(q *Read) bool { return old(q.born) }
	if q := a.current; q != nil && slices.ContainsFunc(q.reads, aged) {
		// The entire round is dropped. The reads in it that have not timed out go into the next
		// round.
		a.current = nil
		a.reads = slices.Concat(slices.DeleteFunc(q.reads, stale), a.reads)
	}
	for i := range a.done {
		a.done[i].reads = slices.DeleteFunc(a.done[i].reads, stale)
	}
	if a.m.leader == 0 ||
		a.agent.Pending() && a.m.ticks-a.roundAt >= uint64(a.m.cfg.ElectionTicks) {
		a.resetGroups()
	}
	a.renewals = slices.DeleteFunc(a.renewals, func(n Renewal) bool {
		if old(n.born) {
			out.renewed(n, 0, ErrNoLeader)
		}
		return old(n.born)
	})
	for i := range a.open {
		if o := &a.open[i]; old(o.renewal.born) {
			a.answer(i, 0, ErrNoLeader)
		}
	}
	a.sweep()
	a.caches.expire(out, old)
}

// renewed answers all renewals in m in one pass, because there may be many.
func (a *asker) renewed(m *Reply) {
	joins := a.roundDone(m)
	waiting := codeOf(errWaiting)
	for _, n := range m.Renewed {
		if joins && n.Group != 0 {
			a.joined(&n, m.GroupRound-a.firstRound)
		}
		switch i, ok := a.find(n.Seq); {
		case !ok:
		case n.Code == waiting:
			// only the leader decides how long this renewal waits
			a.open[i].renewal.born = a.m.ticks
		default:
			a.answer(i, n.TTL, n.Code.err())
		}
	}
	a.sweep()
	if joins {
		a.round = nil
		maps.DeleteFunc(a.gone, func(_ lease.ID, last uint64) bool { return last <= a.rounds })
	}
}

// roundDone records the outcome of a round of groups, and reports whether it was the round in
// progress.
func (a *asker) roundDone(m *Reply) bool {
	if m.GroupRound <= a.firstRound || !a.agent.Pending() {
		return false
	}
	for _, x := range a.agent.Answered(m.GroupRound-a.firstRound, m.Groups) {
		if x.TTL > 0 {
			a.m.out.renewed(x.Of, x.TTL, nil)
		} else {
			a.renewals = append(a.renewals, x.Of)
		}
	}
	return !a.agent.Pending()
}

// joined records that a lease joined a group in the completed round.
func (a *asker) joined(n *Renewed, round uint64) {
	if len(a.round) == 0 || n.Seq-a.round[0].Seq >= uint64(len(a.round)) {
		return
	}
	its := a.round[n.Seq-a.round[0].Seq] // numbers are consecutive
	j := holder.Join[struct{}]{
		ID: its.ID, Token: its.Token, Group: n.Group, TTL: n.TTL, Rounds: round,
	}
	if _, gone := a.gone[its.ID]; gone {
		a.agent.Unwanted(j)
		return
	}
	a.agent.Joined(a.m.now, j)
}

// find returns the position of the open renewal numbered seq.
func (a *asker) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(a.open, seq, func(o asked, seq uint64) int {
		return cmp.Compare(o.seq, seq)
	})
}

// answer answers the open renewal at position i.
func (a *asker) answer(i int, ttl lease.TTL, err error) {
	o := &a.open[i]
	if o.answered {
		return
	}
	o.answered = true
	a.over++
	a.m.out.renewed(o.renewal, ttl, err)
}

// sweep removes answered renewals once they make up half of the list. Some renewals wait a long
// time, and the answers are spread over many replies.
func (a *asker) sweep() {
	if 2*a.over >= len(a.open) {
		a.open = slices.DeleteFunc(a.open, func(o asked) bool { return o.answered })
		a.over = 0
	}
}

func (a *asker) confirmed(m *Reply) {
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
		if filled[0] {
			read.Fill.Term = m.Term
		}
		filled = filled[1:]
	}
	if len(q.reads) > 0 {
		a.done = append(a.done, confirmed{m.Index, q.reads})
	}
}

// release answers the rounds whose index has been applied on this member.
func (a *asker) release() {
	if a.m.machine.Midway() {
		return // a reader of leases would see a half-finished deletion
	}
	n := 0
	for ; n < len(a.done) && a.done[n].index <= a.m.machine.Index(); n++ {
		for _, read := range a.done[n].reads {
			a.m.finish(read)
		}
	}
	a.done = a.done[n:]
}
