package replica

import (
	"cmp"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// leadership is the state that a member has only while it leads. It is created when the member's
// term as leader begins, and dropped when that term ends. It connects parts that do not refer to
// each other.
//
// All commands take the same path: propose, admit, the gate, the queue. The Replica makes entries
// from the queue. Renewals and reads wait for a confirm round.
type leadership struct {
	m       *local
	term    uint64
	gate    gate
	queue   queue
	changes changes
	expiry  expirer
	rounds  rounds
	remotes remotes
	keepers keepers
	// parked holds renewals of leases whose expiry is in the log, until the outcome of the expiry
	// is known. Until this member is primary, it holds all renewals.
	parked parking
	early  []*Renewals // batches that arrived before this member was primary
	// raising is true while the outcome of a proposed change of the cluster version is not known.
	raising bool
	// compareAt is the tick at which the members' states are compared next.
	compareAt uint64
	inflight  *inflight   // this member's entries in the log
	slow      *slowCaches // sent to all members
	// offers counts how often leadership was offered to each member.
	offers map[uint64]int
}

// newLeadership returns the initial state of a leader. Confirm rounds with IDs up to lastRound and
// groups with IDs up to lastGroup belong to an earlier term.
func newLeadership(
	m *local, log *inflight, slow *slowCaches, lastRound uint64, lastGroup lease.GroupID,
) *leadership {
	l := &leadership{
		m: m, term: m.term,
		queue:  queue{machine: m.machine, maxBatch: m.cfg.MaxBatch},
		rounds: rounds{last: lastRound}, remotes: remotes{term: m.term}, inflight: log, slow: slow,
		keepers: keepers{lessor: m.lessor, last: lastGroup},
		offers:  make(map[uint64]int),
	}
	l.expiry = l.newExpirer()
	l.gate = gate{term: m.term, machine: m.machine, leases: leases{m.lessor, &l.expiry}}
	l.compareAt = m.ticks + m.cfg.CompareTicks/10
	return l
}

func (l *leadership) newExpirer() expirer {
	return expirer{machine: l.m.machine, lessor: l.m.lessor, term: l.term, began: l.m.ticks}
}

// promote starts this member's tracker. Since this leader has applied an entry of its own term, it
// knows every lease that an earlier leader granted.
func (l *leadership) promote() {
	l.m.primary = true
	l.expiry = l.newExpirer()
	l.keepers = keepers{
		lessor: l.m.lessor, access: l.m.machine.Access(), last: l.keepers.last,
	}
	l.m.lessor.Promote(l.m.now)
	l.gate.open(l.m.now)
	for _, n := range l.parked.takeAll(l.m.ticks) {
		l.renew(n)
	}
	early := l.early
	l.early = nil
	for _, b := range early {
		l.renewAll(b)
	}
}

// demote stops the tracker. There is nothing to undo: decisions in flight have no effect after the
// term ends, because fsm.Expire is fenced.
func (l *leadership) demote() {
	if l.m.primary {
		l.m.primary = false
		l.m.lessor.Demote()
		l.expiry.checkpointedAll()
	}
}

// close ends the leadership, and returns the requests from this member's clients that the next
// leader can still serve. Entries in the log may still be committed, so their proposers keep
// waiting. Internal commands are dropped, even those in the log. A renewal that is waiting for one
// of them is sent to the next leader instead.
func (l *leadership) close() (all unanswered) {
	l.demote()
	held, parked := l.gate.close(l.m.ticks)
	unlogged := slices.Concat(l.queue.waiting, held, l.changes.waiting)
	for _, list := range [...][]*Proposal{l.inflight.of(l.term), unlogged} {
		for _, p := range list {
			if p.internal != nil && p.internal.clears != nil {
				all.renewals = append(all.renewals, *p.internal.clears)
			}
		}
	}
	all.commands = own(unlogged)
	l.queue.waiting, l.changes.waiting = nil, nil
	for _, b := range l.rounds.close() {
		all.unconfirmed(&b)
	}
	for _, b := range l.early { // nothing was promised
		if b.from == 0 {
			all.groups = append(all.groups, b)
			for i := range b.IDs {
				all.renewals = append(all.renewals, b.single(i))
			}
		}
	}
	all.renewals = slices.Concat(all.renewals, l.parked.takeAll(l.m.ticks), parked)
	all.ownRenewals()
	return all
}

// takeOver accepts the requests that were waiting for a leader when this member became the leader.
func (l *leadership) takeOver(all unanswered) {
	for _, p := range all.commands {
		l.admit(p)
	}
	for _, q := range all.reads {
		l.read(q)
	}
	l.rounds.next.opens = append(l.rounds.next.opens, all.opens...)
	for i := range all.renewals {
		l.renew(all.renewals[i])
	}
}

// propose accepts a command from a client of this member or another one. It rejects commands that
// only the leader's timers can issue, even if another member sends them (T1).
func (l *leadership) propose(p *Proposal) {
	if fsm.Internal(p.Command) {
		l.refuse(p, ErrInternal)
		return
	}
	if h, ok := p.Command.(*fsm.StateHash); ok && h.Member != cmp.Or(p.origin.Member, l.m.cfg.ID) {
		l.refuse(p, ErrInternal) // a member can report only its own hash
		return
	}
	l.admit(p)
}

// proposeOwn proposes a command from the leader's timers. It is not subject to the limits on
// clients' commands.
func (l *leadership) proposeOwn(c fsm.Command, i internal) {
	l.admit(&Proposal{Command: c, internal: &i})
}

// admit passes a command to the queue, immediately or later. All commands pass through admit.
func (l *leadership) admit(p *Proposal) {
	if fsm.Membership(p.Command) {
		l.changes.waiting = append(l.changes.waiting, p)
		return
	}
	switch now, err := l.gate.ask(p); {
	case err != nil:
		l.refuse(p, err)
	case now:
		l.enqueue(p)
	}
}

// enqueue adds a command that has passed the gate to the queue.
func (l *leadership) enqueue(p *Proposal) {
	if err := l.queue.add(p); err != nil {
		l.refuse(p, err)
		return
	}
	l.gate.passed(p)
}

// refuse rejects a command that is not in the log.
func (l *leadership) refuse(p *Proposal, err error) {
	l.ended(p)
	switch {
	case p.internal != nil:
		l.outcome(p, false)
	case p.origin.Member != 0:
		l.remotes.of(p.origin.Member).refuse(p.origin.Seq, err)
	default:
		l.m.out.refuse(p, err)
	}
}

// ended records that a command has an outcome, or that this leader will not produce one.
func (l *leadership) ended(p *Proposal) {
	l.gate.ended(p)
	l.queue.ended(p, l.inflight)
}

// outcome handles the outcome of a timer's command: either it was applied, or it certainly never
// will be.
func (l *leadership) outcome(p *Proposal, applied bool) {
	switch c := p.Command.(type) {
	case *fsm.Expire:
		l.expired(p, c.Leases, applied)
	case *fsm.Checkpoint:
		if p.internal.clears != nil {
			l.cleared(*p.internal.clears, applied)
			return
		}
		l.expiry.checkpointed(c.Leases, applied)
		l.refresh()
	case *fsm.DropOrphans:
		if !applied {
			l.gate.caches.NotDropped(c.Tokens)
		}
	case *fsm.SetVersion:
		l.raising = false
	}
}

// expire proposes commands for everything that the tracker reports as due: expiries, and
// checkpoints of silent leases.
func (l *leadership) expire() {
	if !l.m.primary || l.expiry.refresh {
		return
	}
	if !l.expiry.expiring {
		if due := l.expireSingly(l.expiry.due(l.m.now, l.m.cfg.MaxExpire)); len(due) > 0 {
			l.proposeOwn(l.expiry.expire(due, l.m.now), internal{decided: l.m.now})
		}
	}
	if c := l.expiry.checkpoint(l.m.now, l.m.cfg.MaxExpire); c != nil {
		l.proposeOwn(c, internal{})
	}
}

// expiryWork bounds the directory's work per step for leases that expire separately. At least one
// lease is processed per step. The bound is an eighth of the bound for clients' commands. The two
// are counted separately, so that neither kind of work starves the other.
const expiryWork = 1 << 15

// expireSingly removes from a batch all leases whose keys may be cached. Each of these leases
// expires separately, so that a cache that does not answer delays no other lease (T15). Leases for
// which this step has no time remain due.
func (l *leadership) expireSingly(due []lease.Due) (rest []lease.Due) {
	caches := l.gate.caches
	if caches.Idle() {
		return due
	}
	work := 0
	for i, d := range due {
		if work >= expiryWork {
			l.m.lessor.Reinstate(due[i:])
			break
		}
		work += caches.Uncharged(func() {
			if p := l.gate.single(d, l.m.now); p != nil {
				l.admit(p)
			} else {
				rest = append(rest, d)
			}
		})
	}
	return rest
}

// expired handles the outcome of an expiry, and retries the renewals that were waiting for it. If
// Raft rejected the command, it certainly has no effect, so its leases are alive and due again. A
// timeout never counts as a rejection, because after a timeout the outcome is unknown (T5, T12).
func (l *leadership) expired(p *Proposal, due []lease.Due, applied bool) {
	if single := p.internal.single; single != nil {
		l.gate.singles.remove(single)
	} else {
		l.expiry.expiring = false
	}
	if applied {
		for i := range due {
			late := due[i].Late + lease.TTL(l.m.now-p.internal.decided)
			l.m.out.Late = append(l.m.out.Late, late)
		}
	} else {
		l.m.lessor.Reinstate(due)
	}
	l.refresh()
	for i := range due {
		for _, n := range l.parked.take(due[i].ID) {
			l.renew(n)
		}
	}
}

// distrust restarts the full TTL of every lease once no earlier decision is in the log, because the
// clock may not have measured the time before that.
func (l *leadership) distrust() {
	l.expiry.refresh = l.m.primary
	for _, p := range l.gate.distrust(l.m.now) {
		l.ended(p)
		l.outcome(p, false)
	}
	l.refresh()
}

// refresh promotes this member again if that is needed and no earlier decision is in the log. If an
// Expire were still in the log, a lease could be alive again, be renewed, and still expire (T5). If
// a clearing entry were still in the log, a lease could end at its checkpoint although its holder
// has renewed it.
func (l *leadership) refresh() {
	if l.m.primary && l.expiry.mayRefresh() && !l.gate.singles.any() {
		l.demote()
		l.promote()
	}
}

// raiseVersion proposes a change of the cluster version if one is due and none is in progress.
func (l *leadership) raiseVersion() {
	if !l.m.primary || l.raising {
		return
	}
	if c := l.m.machine.DueVersion(); c != nil {
		l.raising = true
		l.proposeOwn(c, internal{})
	}
}

// compare requests the hashes of all members' states when a comparison is due: some time after this
// leader's term has begun, and then every Config.CompareTicks.
func (l *leadership) compare() {
	every := l.m.cfg.CompareTicks
	if !l.m.primary || every == 0 || l.m.ticks < l.compareAt {
		return
	}
	l.compareAt = l.m.ticks + every
	if len(l.m.machine.View().Members) < 2 {
		return // there is no other member to compare with
	}
	l.proposeOwn(&fsm.HashState{}, internal{})
}

// openGates passes on the commands and renewals that can proceed. Commands are proposed and applied
// in the order of their numbers.
func (l *leadership) openGates() {
	if !l.gate.waits() {
		return
	}
	l.gate.caches.Settled(l.inflight.first(l.queue.first()))
	l.gate.caches.Advance(l.m.now)
	l.dropOrphans()
	for _, w := range l.gate.caches.Ready() {
		p := w.Owner.(*Proposal)
		p.Wait = CacheWait{For: w.Waited(), Until: l.m.now}
		p.Wait.Drops, p.Wait.Last = w.Drops()
		l.enqueue(p)
	}
	for _, id := range l.gate.caches.TakeAcknowledged() {
		for _, n := range l.gate.parked.take(id) {
			l.renew(n)
		}
	}
	l.passEarly()
}

// passEarly passes on the commands that arrived before the gate was open, in order. It passes as
// many as this step has time for.
func (l *leadership) passEarly() {
	early := l.gate.early
	l.gate.early = nil
	for n, p := range early {
		if l.gate.caches.Spent() {
			l.gate.early = early[n:]
			return
		}
		l.admit(p)
	}
}

// followHolds processes the leases whose held ranges changed in the last entry.
func (l *leadership) followHolds(changed []fsm.Holding) {
	if l.gate.caches != nil {
		l.gate.follow(changed, l.m.now)
		l.dropOrphans()
	}
}

// dropOrphans proposes to drop the orphans whose caches are empty, which makes room for new holds.
func (l *leadership) dropOrphans() {
	most := l.m.cfg.MaxExpire
	for {
		tokens := l.gate.caches.TakeStopped(most)
		if len(tokens) == 0 {
			return
		}
		l.proposeOwn(&fsm.DropOrphans{Tokens: tokens}, internal{})
	}
}
