package lease

import "fmt"

// Advance moves the clock to now. Followers need it too, for the countdowns of
// checkpointed leases. It panics if now is before the previous call's.
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
// one. Where more than Config.SpreadRate leases would end within a second
// the rest end later. It panics if now is before the previous Advance.
func (l *Lessor) Promote(now Instant, extend TTL) {
	l.Demote()
	l.Advance(now)
	t := newTracker(&l.cfg, l.table, now)
	s := newSpreader(l.cfg.SpreadRate, now)
	silence := l.cfg.untended
	if l.Len() > maxUntended {
		silence = l.cfg.silence
	}
	for slot := range l.table.top {
		r := l.table.record(slot)
		if r.id == 0 {
			continue
		}
		expiry := now.after(r.ttl.plus(max(0, extend)))
		quiet := now.after(silence(r.ttl))
		if r.remaining != 0 {
			c := l.countdown.grow(slot)
			if *c == 0 {
				*c = now.after(r.remaining)
			}
			expiry, quiet = *c, now.after(l.cfg.CheckpointInterval)
		}
		t.resume(slot, s.spread(expiry), quiet)
	}
	l.tracker = t
}

// Demote makes this member a follower, which does not time leases. What the
// tracker knew is forgotten; the countdowns of checkpointed leases stay.
func (l *Lessor) Demote() { l.tracker = nil }

// Renew gives a lease its full TTL anew from the current instant. The promise
// may be told to the holder once a quorum has confirmed that this member still
// leads, and see Renewal.Clear. It returns ErrNotPrimary, ErrNotFound, or
// ErrExpiring (T5).
func (l *Lessor) Renew(id ID) (Renewal, error) {
	if l.tracker == nil {
		return Renewal{}, ErrNotPrimary
	}
	slot, ok := l.table.index[id]
	if !ok {
		return Renewal{}, ErrNotFound
	}
	n, ok := l.tracker.renew(slot)
	if !ok {
		return Renewal{}, ErrExpiring
	}
	return n, nil
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
	if slot, ok := l.table.index[id]; ok {
		l.tracker.abandon(slot)
	}
}

// Due decides to expire up to most leases that are past their expiry, ordered
// by expiry and then ID. From now on they are expiring: see Expire and
// Reinstate for how that ends. It returns nothing on a follower.
func (l *Lessor) Due(most int) []Due {
	if l.tracker == nil {
		return nil
	}
	return l.tracker.decide(most)
}

// Silent returns the remaining time of up to most leases that have not been
// renewed for 2/5 of their TTL, or Config.CheckpointInterval if that is shorter,
// or Config.Untended if nobody tends them, ordered by ID, so that it can be
// replicated. A lease that stays silent is returned again every
// CheckpointInterval. It returns nothing on a follower.
func (l *Lessor) Silent(most int) []Checkpoint {
	if l.tracker == nil {
		return nil
	}
	return l.tracker.report(most)
}

// Reinstate takes back what Due or Silent proposed about some leases, because
// the command was dropped and never will be applied. The caller must be
// certain of that, and not only impatient: a lease that is alive again while
// its Expire is under way could be renewed and expire all the same (T5). The
// leases are alive, and due or silent again at once.
func (l *Lessor) Reinstate(ids []ID) {
	if l.tracker == nil {
		return
	}
	for _, id := range ids {
		if slot, ok := l.table.index[id]; ok {
			l.tracker.reinstate(slot, isExpiring|isPending)
		}
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

// NextDue is Next for Due alone, for a caller that would not take silent leases now.
func (l *Lessor) NextDue() (at Instant, ok bool) {
	if l.tracker == nil {
		return 0, false
	}
	return l.tracker.nextDue()
}
