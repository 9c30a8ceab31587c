package lease

import "fmt"

// Advance moves the clock to now. Followers need it too, for the countdowns of
// checkpointed leases. It panics if now is before the previous call's.
//
// A primary looks at no more than Config.AtOnce leases whose time has come, so that a call takes
// some milliseconds at most. As long as there may be more, Next returns now.
func (l *Lessor) Advance(now Instant) {
	if now < l.now {
		panic(fmt.Sprintf("lease: clock goes back from %d to %d", l.now, now))
	}
	l.now = now
	if l.tracker != nil {
		l.tracker.advance(now)
	}
}

// Promote makes this member the primary, which times leases from now on. Every
// lease is given its full TTL, and extend in addition, because renewals were
// not replicated. A checkpointed lease alone ends by this member's own
// countdown, so that a silent lease ends however often the primary changes
// (T9, L7). Nobody tends the others yet, so those that are not renewed soon are
// silent (see Config.Untended): several changes in a row add up to no more than
// one. Checkpointed leases are checkpointed again as soon, then after twice that
// time, and so on: so they end even if all members restart again and again.
// Where more than Config.SpreadRate leases would end within a second the rest
// end later. It panics if now is before the previous Advance.
//
// It looks at no more than Config.AtOnce leases, and so does each Advance, until all are timed.
// Their times count from now, whenever that is.
func (l *Lessor) Promote(now Instant, extend TTL) {
	l.Demote()
	l.Advance(now)
	if l.counting == 0 {
		l.counting = now
	}
	l.tracker = newTracker(l)
	l.tracker.promote(extend)
}

// Demote makes this member a follower, which does not time leases. What the
// tracker knew is forgotten; the countdowns of checkpointed leases stay.
func (l *Lessor) Demote() { l.tracker = nil }

// Recount begins the countdown of every checkpointed lease anew, from what remained when it was
// checkpointed, because the clock is not to be trusted to have measured the time since. On a
// primary that counts from the next Promote on.
func (l *Lessor) Recount() {
	for slot := range l.table.top {
		if r := l.table.record(slot); r.remaining != 0 {
			l.meet(slot)
			*l.countdown.grow(slot) = l.now.after(r.remaining)
		}
	}
}

// Renew gives a lease its full TTL anew from the current instant. The promise
// may be told to the holder once a quorum has confirmed that this member still
// leads, and see Renewal.Clear. The token is the one that the holder has, or 0
// for any: a renewal of an earlier incarnation of the ID renews nothing (T28). It returns
// ErrNotPrimary, ErrNotFound, also for a delayed lease, or ErrExpiring (T5).
func (l *Lessor) Renew(id ID, token Token) (Renewal, error) {
	if l.tracker == nil {
		return Renewal{}, ErrNotPrimary
	}
	slot, ok := l.find(id)
	if !ok {
		return Renewal{}, ErrNotFound
	}
	return l.tracker.renew(slot, token)
}

// NearMisses counts the renewals that came when less than a quarter of the TTL was left, since the
// promotion. It is 0 on a follower.
func (l *Lessor) NearMisses() uint64 {
	if l.tracker == nil {
		return 0
	}
	return l.tracker.nearMisses
}

// maxUntended is how many leases a new primary checkpoints early, at most. More
// of them would keep the log busy when everybody waits for it.
const maxUntended = 100_000

// Abandon says that nobody tends a lease any more: the connection over which it
// was kept alive has ended, say. It goes on living, but unless it is renewed
// soon (Config.Untended) its remaining time is replicated, so that it ends on
// time even if the primary changes. It does nothing on a follower, or if there is
// no such lease.
func (l *Lessor) Abandon(id ID) {
	if l.tracker == nil {
		return
	}
	if slot, ok := l.find(id); ok {
		l.tracker.abandon(slot)
	}
}

// Due decides to expire up to most leases that are past their expiry, ordered
// by expiry and then ID. From now on they are expiring: see Expire and
// Reinstate for how that ends. They may be fewer although more are due, as
// long as Next returns now. It returns nothing on a follower.
func (l *Lessor) Due(most int) []Due {
	if l.tracker == nil {
		return nil
	}
	return l.tracker.decide(most)
}

// Silent returns the remaining time of up to most leases that have not been
// renewed for 2/5 of their TTL, or Config.CheckpointInterval if that is shorter,
// or Config.Untended if nobody tends them, ordered by ID, so that it can be
// replicated. A lease that stays silent is returned again after each further 2/5 of its
// TTL, but neither sooner than a second nor later than CheckpointInterval; more often
// only for some time after a promotion. They may be fewer although there are more: see
// MoreSilent. It returns nothing on a follower.
func (l *Lessor) Silent(most int) []Checkpoint {
	if l.tracker == nil {
		return nil
	}
	return l.tracker.report(most)
}

// MoreSilent reports whether Silent has more to return. Next then returns now.
func (l *Lessor) MoreSilent() bool { return l.tracker != nil && l.tracker.silents > 0 }

// CheckpointAll makes Silent return every checkpointed lease again, with what remains of it
// now: a primary that is about to stop leaves nothing to the next interval. It does nothing
// on a follower.
func (l *Lessor) CheckpointAll() {
	if l.tracker == nil {
		return
	}
	for slot := range l.table.top {
		if l.table.record(slot).remaining != 0 {
			l.tracker.hasten(slot)
		}
	}
}

// Reinstate takes back what Due decided, because the command was dropped and never
// will be applied. The caller must be certain of that, and not only impatient: a
// lease that is alive again while its Expire is under way could be renewed and
// expire all the same (T5). The leases are alive, and due again at once. One that
// has another token by now is left alone: what is decided about it is another
// decision, whose outcome is still open (T28).
func (l *Lessor) Reinstate(due []Due) {
	for i := range due {
		l.reinstate(due[i].ID, due[i].Token, isExpiring)
	}
}

// Unreport is Reinstate for what Silent returned: the leases are silent again.
func (l *Lessor) Unreport(silent []Checkpoint) {
	for i := range silent {
		l.reinstate(silent[i].ID, silent[i].Token, isPending)
	}
}

// reinstate looks at no stamp: within one incarnation of a lease there is one proposal at a time,
// and it is still under way if the lease has changed since.
func (l *Lessor) reinstate(id ID, token Token, f flags) {
	if l.tracker == nil {
		return
	}
	if slot, ok := l.find(id); ok && l.table.record(slot).token == token {
		l.tracker.reinstate(slot, f)
	}
}

// Next returns an instant before which neither Due nor Silent will have
// anything that they do not have now, so that the caller may sleep until then.
// Often there is nothing yet when it comes. ok=false means that only a command
// can change that: there is no lease to wait for, or this is a follower.
func (l *Lessor) Next() (at Instant, ok bool) {
	if l.tracker == nil {
		return 0, false
	}
	return l.tracker.next()
}

// NextDue is like Next, but only for Due: for a caller that does not take silent leases now.
func (l *Lessor) NextDue() (at Instant, ok bool) {
	if l.tracker == nil {
		return 0, false
	}
	return l.tracker.nextDue()
}
