package replica

import (
	"cmp"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica/confirm"
	"leasehold.dev/lease"
)

// leadership is all that a member has only while it leads: it is made when the term begins, and
// dropped when that ends. Its parts do not know each other; here they are joined.
//
// Commands go one way down: propose, admit, the gate, the queue. The Replica makes entries of the
// queue. Renewals and reads wait for a confirm round.
type leadership struct {
	m       *local
	term    uint64
	gate    gate
	queue   queue
	changes changes
	expiry  expirer
	rounds  confirm.Queue[round]
	remotes remotes
	keepers keepers
	// parked are renewals of expiring leases, until the outcome is known, and of all leases while
	// this member is not primary.
	parked parking
	early  []*Renewals // batches that came before this member was primary
	// raising says that a change of the cluster version was proposed and has no outcome yet.
	raising bool
	// compareAt is the tick from which the members' states are compared again.
	compareAt uint64
	inflight  *inflight   // this member's entries in the log
	slow      *slowCaches // as all members know them
	// offers counts how often the lead was offered to each member.
	offers map[uint64]int
}

// newLeadership returns what a member begins to lead with. Confirm rounds with an ID up to
// lastRound are of an earlier term.
func newLeadership(m *local, log *inflight, slow *slowCaches, lastRound uint64) *leadership {
	l := &leadership{
		m: m, term: m.term, queue: queue{m: m}, expiry: expirer{m: m, began: m.ticks},
		rounds: confirm.After[round](lastRound), remotes: remotes{m: m}, inflight: log, slow: slow,
		keepers: keepers{m: m},
		offers:  make(map[uint64]int),
	}
	l.gate = gate{m: m, leases: leases{m, &l.expiry}}
	l.compareAt = m.ticks + m.cfg.CompareTicks/10
	return l
}

// promote starts this member's tracker: it leads, and has applied an entry of its own term, so it
// knows every lease that any leader granted before.
func (l *leadership) promote() {
	l.m.primary = true
	l.expiry = expirer{m: l.m, began: l.m.ticks}
	l.keepers = keepers{m: l.m, access: l.m.machine.Access()}
	l.m.lessor.Promote(l.m.now)
	l.gate.open()
	for _, n := range l.parked.takeAll(l.m.ticks) {
		l.renew(n)
	}
	early := l.early
	l.early = nil
	for _, b := range early {
		l.renewAll(b)
	}
}

// demote stops the tracker. Decisions on their way lose their meaning with
// the term (the fence of fsm.Expire), so nothing is left to undo.
func (l *leadership) demote() {
	if l.m.primary {
		l.m.primary = false
		l.m.lessor.Demote()
		l.expiry.checkpointedAll()
	}
}

// close ends the leadership, and returns what clients of this member asked for and can still be
// done by the next leader. What is in the log may still be committed, and its proposers wait for
// that. The leader's own commands are of no interest any more, wherever they are: a renewal that
// waits for one of them asks the next leader rather than to wait for this one's log.
func (l *leadership) close() (all unanswered) {
	l.demote()
	held, parked := l.gate.close()
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
	for _, b := range l.rounds.Close() {
		all.unconfirmed(&b)
	}
	for _, b := range l.early { // of which nothing is promised
		if b.from == 0 {
			all.groups = append(all.groups, b)
			all.batches = append(all.batches, b)
		}
	}
	all.renewals = slices.Concat(all.renewals, l.parked.takeAll(l.m.ticks), parked)
	all.ownRenewals()
	return all
}

// takeOver takes what waited for a leader, now that it is this member.
func (l *leadership) takeOver(all unanswered) {
	for _, p := range all.commands {
		l.admit(p)
	}
	for _, q := range all.reads {
		l.read(q)
	}
	l.rounds.Next.opens = append(l.rounds.Next.opens, all.opens...)
	for i := range all.renewals {
		l.renew(all.renewals[i])
	}
	for _, b := range all.batches {
		l.renewAll(b)
	}
}

// propose takes a command of a client, of this member or of another one. Commands of the leader's
// timers are refused, whichever member sends them (T1).
func (l *leadership) propose(p *Proposal) {
	if fsm.Internal(p.Command) {
		l.refuse(p, ErrInternal)
		return
	}
	if h, ok := p.Command.(*fsm.StateHash); ok && h.Member != cmp.Or(p.origin.Member, l.m.cfg.ID) {
		l.refuse(p, ErrInternal) // nobody speaks for another
		return
	}
	l.admit(p)
}

// proposeOwn takes a command of the leader's timers. It never waits behind clients' admission.
func (l *leadership) proposeOwn(c fsm.Command, i internal) {
	l.admit(&Proposal{Command: c, internal: &i})
}

// admit lets a command into the queue, at once or when it may. All commands come this way.
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

// enqueue puts a command into the queue: the gate is open for it.
func (l *leadership) enqueue(p *Proposal) {
	if err := l.queue.add(p); err != nil {
		l.refuse(p, err)
		return
	}
	l.gate.passed(p)
}

// refuse gives a command its end: there is no result, and it is not in the log.
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

// ended says that a command has its outcome, or is not going to have one here.
func (l *leadership) ended(p *Proposal) {
	l.gate.ended(p)
	l.queue.ended(p, l.inflight)
}

// outcome takes the outcome of a command of the leader's timers: it was applied, or certainly not.
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

// expire proposes what the tracker finds due: leases past their expiry, and the remaining time of
// silent ones.
func (l *leadership) expire() {
	if !l.m.primary || l.expiry.refresh {
		return
	}
	if !l.expiry.expiring {
		if due := l.expireSingly(l.expiry.due()); len(due) > 0 {
			l.proposeOwn(l.expiry.expire(due), internal{decided: l.m.now})
		}
	}
	if c := l.expiry.checkpoint(); c != nil {
		l.proposeOwn(c, internal{})
	}
}

// expiryWork is how much work of the directory a step does, at most, for leases that expire by
// themselves: an eighth of what it does for commands of clients, beside that, and for one lease at
// least. So neither keeps the other from its turn.
const expiryWork = 1 << 15

// expireSingly takes those leases out of a batch whose keys some cache may have. Each of them
// expires by itself, so that one cache that does not answer delays no other lease (T15). Those for
// which this step has no time stay due.
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
		work += caches.Apart(func() {
			if p := l.gate.single(d); p != nil {
				l.admit(p)
			} else {
				rest = append(rest, d)
			}
		})
	}
	return rest
}

// expired takes the outcome of an expiry, and tries the renewals that waited for it again.
func (l *leadership) expired(p *Proposal, due []lease.Due, applied bool) {
	if single := p.internal.single; single != nil {
		l.gate.singles.remove(single)
	} else {
		l.expiry.expiring = false
	}
	l.expiry.expired(due, p.internal.decided, applied)
	l.refresh()
	for i := range due {
		for _, n := range l.parked.take(due[i].ID) {
			l.renew(n)
		}
	}
}

// distrust gives every lease its full TTL from now on, as soon as nothing that was decided before
// is in the log any more: the clock did not measure the time before.
func (l *leadership) distrust() {
	l.expiry.refresh = l.m.primary
	for _, p := range l.gate.distrust() {
		l.ended(p)
		l.outcome(p, false)
	}
	l.refresh()
}

// refresh promotes anew if that is wanted and nothing that was decided before is in the log any
// more. A lease that is alive again while its Expire is under way could be renewed and expire all
// the same (T5); one whose clearing entry is under way would end by the checkpoint although its
// holder was heard.
func (l *leadership) refresh() {
	if l.m.primary && l.expiry.mayRefresh() && !l.gate.singles.any() {
		l.demote()
		l.promote()
	}
}

// raiseVersion proposes the change of the cluster version for which it is time, if there is one
// and none is under way.
func (l *leadership) raiseVersion() {
	if !l.m.primary || l.raising {
		return
	}
	if c := l.m.machine.DueVersion(); c != nil {
		l.raising = true
		l.proposeOwn(c, internal{})
	}
}

// compare asks for the hashes of all members' states when it is time for that: a while after this
// leader has begun, and then after each Config.CompareTicks.
func (l *leadership) compare() {
	every := l.m.cfg.CompareTicks
	if !l.m.primary || every == 0 || l.m.ticks < l.compareAt {
		return
	}
	l.compareAt = l.m.ticks + every
	if len(l.m.machine.View().Members) < 2 {
		return // there is nobody to compare with
	}
	l.proposeOwn(&fsm.HashState{}, internal{})
}

// openGates lets those commands and renewals go on that may. Commands are proposed, and applied, in
// the order of their numbers.
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

// passEarly lets the commands go on that came before the gate was open, in their order, as many as
// this step has time for.
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

// followHolds learns which leases hold ranges since the last entry, and which do not.
func (l *leadership) followHolds(changed []fsm.Holding) {
	if l.gate.caches != nil {
		l.gate.follow(changed)
		l.dropOrphans()
	}
}

// dropOrphans proposes to drop the orphans whose caches have nothing any more. So they make
// room for holds that are asked for from now on.
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
