package lease

import "fmt"

// Advance moves the clock to now. Followers also need it, for the countdowns of checkpointed
// leases. It panics if now is earlier than in the previous call.
//
// A primary processes at most Config.AtOnce leases per call, which takes at most a few
// milliseconds. While there may be more, Next returns the current instant.
func (l *Lessor) Advance(now Instant) {
	if now < l.now {
		panic(fmt.Sprintf("lease: clock went backward from %d to %d", l.now, now))
	}
	l.now = now
	if l.tracker != nil {
		l.tracker.advance(now)
	}
}

// Promote makes this member the primary, which times leases from now on.
//
// Because renewals are not replicated, every lease gets its full TTL. The exception is a
// checkpointed lease, which ends according to this member's own countdown. So a silent lease ends
// no matter how often the primary changes (T9, L7). The other leases start out untended: those that
// are not renewed soon become silent (see Config.Untended). So several primary changes in a row
// extend a lease no more than a single one does. Checkpointed leases are checkpointed again after
// the time in which untended leases become silent, then after twice that time, and so on, so they
// end even if all members restart repeatedly. If more than Config.SpreadRate leases would end
// within a second, the rest end later. Promote panics if now is earlier than in the previous
// Advance.
//
// Promote processes at most Config.AtOnce leases, and so does each Advance, until all leases are
// timed. All their times count from the promotion.
func (l *Lessor) Promote(now Instant) {
	l.Demote()
	l.Advance(now)
	if l.counting == 0 {
		l.counting = now
	}
	l.tracker = newTracker(l)
	l.tracker.promote()
}

// Demote makes this member a follower, which does not time leases. It discards all expiries, but
// the countdowns of checkpointed leases continue.
func (l *Lessor) Demote() { l.tracker = nil }

// Recount restarts the countdown of every checkpointed lease from its checkpoint. Use it when the
// clock may not have measured the time since then. On a primary, it takes effect at the next
// Promote.
func (l *Lessor) Recount() {
	for slot := range l.table.top {
		if r := l.table.record(slot); r.remaining != 0 {
			l.startTiming(slot)
			*l.countdown.grow(slot) = l.now.after(r.remaining)
		}
	}
}

// Renew restarts the full TTL of a lease at the current instant. The holder may be notified only
// after a quorum has confirmed that this member still leads; see also Renewal.Clear. The token must
// be the holder's, or 0 to match any. A token from an earlier incarnation of the ID does not renew
// the lease (T28). Renew returns ErrNotPrimary, ErrNotFound (for a delayed lease as well), or
// ErrExpiring (T5).
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

// Fetch loads the data that Renew will read into the CPU cache, and changes nothing. With a million
// leases, little of it is cached, and loading many leases in parallel takes little longer than
// loading one. Fetching first cuts the time to renew a batch of 8 or more leases by about 40%.
//
// Fetch returns the number of leases that it fetched. That is at most 64, so that the first ones
// are still cached when they are renewed. To keep the reads from being optimized away, Fetch also
// returns the latest expiry of these leases, or 0 on a follower.
func (l *Lessor) Fetch(ids []ID) (n int, latest Instant) {
	var all [64]lookup
	n = min(len(ids), len(all))
	if l.tracker == nil {
		return n, 0
	}
	some := all[:n]
	for i := range some {
		some[i].id = ids[i]
	}
	l.table.findAll(some)
	for i := range some {
		// If the lease was not found, entry-1 wraps around to a slot without timing.
		latest = max(latest, l.tracker.timings.get(some[i].entry-1).expiry)
	}
	return n, latest
}

// NearMisses returns the number of renewals since the promotion that arrived when less than a
// quarter of the TTL was left. It is 0 on a follower.
func (l *Lessor) NearMisses() uint64 {
	if l.tracker == nil {
		return 0
	}
	return l.tracker.nearMisses
}

// maxUntended is the maximum number of leases that a new primary checkpoints early. Checkpointing
// more would keep the log busy while many clients are waiting.
const maxUntended = 100_000

// Abandon marks a lease as untended, for instance because its holder's connection has ended. The
// lease is not ended. But unless it is renewed soon (see Config.Untended), its remaining time is
// replicated, so that it ends on time even if the primary changes. Abandon does nothing on a
// follower, or if there is no such lease.
func (l *Lessor) Abandon(id ID) {
	if l.tracker == nil {
		return
	}
	if slot, ok := l.find(id); ok {
		l.tracker.abandon(slot)
	}
}

// Due decides to expire leases that are past their expiry, ordered by expiry and then ID. most
// limits their number. The leases remain expiring until Expire or Reinstate is called. If Next
// returns the current instant, more leases may be due. Due returns nothing on a follower.
func (l *Lessor) Due(most int) []Due {
	if l.tracker == nil {
		return nil
	}
	return l.tracker.decide(most)
}

// Reinstate undoes Due's decisions for commands that were dropped. The caller must be certain that
// such a command will never be applied. Otherwise a lease could be renewed and still expire (T5).
// The leases are alive again, and immediately due again. Reinstate skips a lease whose token has
// changed, because there may be another decision about it with an unknown outcome (T28).
func (l *Lessor) Reinstate(due []Due) {
	for i := range due {
		l.reinstate(due[i].ID, due[i].Token, isExpiring)
	}
}

// reinstate ignores the stamp. Within one incarnation of a lease there is only one proposal at a
// time, so the token identifies it even if the lease has changed since.
func (l *Lessor) reinstate(id ID, token Token, f flags) {
	if l.tracker == nil {
		return
	}
	if slot, ok := l.find(id); ok && l.table.record(slot).token == token {
		l.tracker.reinstate(slot, f)
	}
}

// Next returns an instant before which neither Due nor Silent will have anything new, so the caller
// can sleep until then. Often there is still nothing new at that instant. ok=false means that
// sleeping is pointless until a command arrives: there are no leases, or this member is a follower.
func (l *Lessor) Next() (at Instant, ok bool) {
	if l.tracker == nil {
		return 0, false
	}
	return l.tracker.next()
}

// NextDue is like Next, but considers only Due. It is for callers that do not call Silent.
func (l *Lessor) NextDue() (at Instant, ok bool) {
	if l.tracker == nil {
		return 0, false
	}
	return l.tracker.nextDue()
}
