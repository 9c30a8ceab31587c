package lease

import (
	"leasehold.dev/internal/wheel"
)

// flags are the stages of a lease between alive and gone. A lease without flags is alive.
type flags uint8

const (
	// past its expiry, but the decision to end it has not been made yet
	isDue      flags = 1 << iota
	isExpiring       // the decision to end it is in flight
	isSilent         // needs a checkpoint that has not been proposed yet
	isPending        // a checkpoint is in flight
	isBlocked        // past its expiry, but waiting for the outcome of a pending checkpoint
)

// timing is what the primary needs to time a lease.
type timing struct {
	// expiry is the earliest instant at which the lease may end.
	expiry Instant
	// quiet is the instant at which the lease becomes silent.
	quiet Instant
	state flags
	// delayed is set once the lease has expired. After that, expiry is the end of its lock delay.
	// delayed is never cleared.
	delayed bool
	// group is the index of the lease's group. prev and next are the slots of its neighbors in the
	// group's list. Each is stored plus 1, so that 0 means none. While group is set, expiry and
	// quiet keep the values they had when the lease joined.
	group, prev, next uint32
}

// tracker times the leases of a primary.
//
// A renewal changes only the expiry and quiet instants of a lease. The entry in the wheel is not
// moved: it fires at the old time, and then place checks the instants again. So a renewed lease
// costs one move in the wheel per half TTL, no matter how often it is renewed.
//
// A lease that existed before the promotion is timed before any other operation on it (see
// promotion).
//
// Invariants: For a live lease that is timed, exactly one of these holds: it is in the wheel, it is
// in a group, or it has one of the flags isDue, isExpiring and isBlocked. At most one proposal of
// the tracker per lease is in flight, so isExpiring excludes isPending. The wheel fires a lease no
// later than its expiry and, if the lease has no flags, no later than quiet.
type tracker struct {
	cfg       *Config
	table     *table          // read only
	countdown *paged[Instant] // belongs to the Lessor
	counting  Instant         // copied from the Lessor
	began     Instant
	now       Instant
	timings   paged[timing] // by slot
	wheel     *wheel.Wheel
	due       dueQueue
	silent    []uint32 // slots, oldest first; an entry without isSilent is stale
	dues      int      // number of leases with isDue
	silents   int      // number of leases with isSilent
	// nearMisses counts renewals that were near misses.
	nearMisses uint64
	// promotion is nil once all leases are timed.
	promotion *promotion
	groups    groups
}

func newTracker(l *Lessor) *tracker {
	return &tracker{
		cfg: &l.cfg, table: l.table, countdown: &l.countdown,
		counting: l.counting, began: l.now, now: l.now, wheel: wheel.New(int64(l.now)),
		groups: newGroups(l.now),
	}
}

// advance moves the clock and does a bounded amount of the work that is due.
func (t *tracker) advance(now Instant) {
	t.now = now
	t.wheel.Advance(int64(now), t.cfg.AtOnce, t.place)
	t.advanceGroups()
	t.startTimingMore()
}

// start starts timing a new lease.
func (t *tracker) start(slot uint32) {
	ttl := t.table.record(slot).ttl
	t.resume(slot, t.now.after(ttl), t.now.after(t.cfg.untended(ttl)))
}

// resume starts timing a lease that existed before the promotion.
func (t *tracker) resume(slot uint32, expiry, quiet Instant) {
	*t.timings.grow(slot) = timing{expiry: expiry, quiet: quiet, delayed: t.table.delayed(slot)}
	t.place(slot)
}

// restart starts timing the next incarnation of a lease, or its lock delay. It voids earlier
// proposals about the lease. Without a lock delay, restart never shortens the current lifetime,
// because a promise to the previous holder may still be valid.
func (t *tracker) restart(slot uint32, delayed bool) {
	t.part(slot, true)
	t.unset(slot, isDue|isSilent)
	k, ttl := t.timings.at(slot), t.table.record(slot).ttl
	expiry := t.now.after(ttl)
	if !delayed {
		expiry = max(k.expiry, expiry)
	}
	*k = timing{expiry: expiry, quiet: t.now.after(t.cfg.untended(ttl)), delayed: delayed}
	t.place(slot)
}

// expiry returns the earliest instant at which a lease may end, or 0 if the decision to end it has
// been made.
func (t *tracker) expiry(slot uint32) Instant {
	k := t.timings.at(slot)
	if k.state&isExpiring != 0 {
		return 0
	}
	return t.end(slot)
}

// end returns the earliest instant at which a lease may end, unless it is renewed individually or
// as part of its group.
func (t *tracker) end(slot uint32) Instant {
	k := t.timings.at(slot)
	if g := t.groupAt(slot); g != nil {
		return max(k.expiry, g.renewed.after(g.ttl))
	}
	return k.expiry
}

// forget stops timing a lease.
func (t *tracker) forget(slot uint32) {
	t.part(slot, true)
	t.unset(slot, isDue|isSilent)
	t.wheel.Remove(slot)
	t.timings.clear(slot)
}

// place files a lease according to its instants and flags: among the due leases, among the silent
// ones, or in the wheel until something is due.
func (t *tracker) place(slot uint32) {
	k := t.timings.at(slot)
	switch {
	case k.state&(isDue|isExpiring) != 0 || k.group != 0:
	case k.expiry <= t.now && k.state&isPending != 0:
		// Deciding now would leave two proposals in flight. If one of them were then dropped, there
		// would be no telling which one.
		t.wheel.Remove(slot) // it may not have fired yet
		k.state |= isBlocked
	case k.expiry <= t.now:
		t.wheel.Remove(slot)
		t.unset(slot, isSilent)
		k.state |= isDue
		t.dues++
		t.due.push(dueEntry{k.expiry, placed{t.table.record(slot).id, slot}})
	case k.state&(isSilent|isPending) != 0:
		t.wheel.Add(slot, int64(k.expiry))
	case k.quiet <= t.now:
		k.state |= isSilent
		t.silents++
		t.silent = append(t.silent, slot)
		t.wheel.Add(slot, int64(k.expiry))
	default:
		t.wheel.Add(slot, int64(min(k.expiry, k.quiet)))
	}
}

// unset clears flags of a lease and keeps the queues consistent.
func (t *tracker) unset(slot uint32, f flags) {
	k := t.timings.at(slot)
	f &= k.state
	k.state &^= f
	if f&isDue != 0 {
		t.dues--
		if t.dues == 0 {
			t.due = dueQueue{} // only stale entries were left
		}
	}
	if f&isSilent != 0 {
		t.silents--
		if t.silents == 0 {
			t.silent = nil
		}
	}
}

// nearMiss defines a near miss: a renewal that arrives when less than 1/nearMiss of the TTL is
// left.
const nearMiss = 4

// renew restarts the TTL of a lease if the token matches. Token 0 matches any lease.
func (t *tracker) renew(slot uint32, token Token) (Renewal, error) {
	k, r := t.timings.at(slot), t.table.record(slot)
	if k.delayed || token != 0 && token != r.token {
		return Renewal{}, ErrNotFound
	}
	if k.state&isExpiring != 0 {
		return Renewal{}, ErrExpiring
	}
	if t.end(slot) < t.now.after(r.ttl/nearMiss) {
		t.nearMisses++
	}
	// After a promotion, a lease may have more than its TTL left. A renewal does not shorten it.
	k.expiry = max(k.expiry, t.now.after(r.ttl))
	k.quiet = t.now.after(t.cfg.silence(r.ttl))
	n := Renewal{TTL: r.ttl, Token: r.token}
	if k.state != 0 || r.remaining != 0 {
		// This is rare. The lease may have left the wheel, or its entry may fire too late for the
		// new instants. A checkpointed lease stays checkpointed until a command clears the
		// checkpoint.
		n.Clear = k.state&isPending != 0 || r.remaining != 0
		t.unset(slot, isDue|isSilent|isBlocked)
		t.place(slot)
	}
	return n, nil
}

// touch restarts the TTL of a lease on behalf of a command. An earlier proposal about the lease
// becomes void, but may still be in flight.
func (t *tracker) touch(slot uint32) {
	t.part(slot, true)
	k, ttl := t.timings.at(slot), t.table.record(slot).ttl
	k.expiry = max(k.expiry, t.now.after(ttl))
	k.quiet = t.now.after(t.cfg.silence(ttl))
	t.unset(slot, isDue|isSilent|isBlocked)
	t.place(slot)
}

// abandon makes a lease silent soon unless it is renewed. A lease in a group is tended, so abandon
// leaves it alone.
func (t *tracker) abandon(slot uint32) {
	k, r := t.timings.at(slot), t.table.record(slot)
	quiet := t.now.after(t.cfg.untended(r.ttl))
	if k.state != 0 || r.remaining != 0 || k.quiet <= quiet || k.group != 0 {
		return // already in progress, or known to be silent
	}
	k.quiet = quiet
	t.place(slot)
}

// reinstate withdraws a proposal about a lease if the lease has one of the flags in f. It is called
// when the proposal was dropped, or when the lease has changed since.
func (t *tracker) reinstate(slot uint32, f flags) {
	if t.timings.at(slot).state&f == 0 {
		return
	}
	t.unset(slot, f|isBlocked)
	t.place(slot)
}

// recheckpointInterval returns the time between two checkpoints of a silent lease. After a
// promotion, this interval grows with the age of the tracker. Otherwise members that restart every
// few seconds could restart the same countdown indefinitely.
func (t *tracker) recheckpointInterval(ttl TTL) TTL {
	age := TTL(t.now - t.began)
	return min(t.cfg.recheckpointInterval(ttl), max(t.cfg.untended(ttl), age))
}

// silenceNow makes a lease silent immediately, unless a proposal about it is in flight.
func (t *tracker) silenceNow(slot uint32) {
	t.startTiming(slot)
	k := t.timings.at(slot)
	k.quiet = min(k.quiet, t.now)
	t.place(slot)
}

// decide returns up to most leases past their expiry, in order, and marks them as expiring. It
// returns fewer if many leases in the queue are no longer due.
func (t *tracker) decide(most int) []Due {
	var out []Due
	for looks := most + t.cfg.AtOnce/8; t.dues > 0 && len(out) < most && looks > 0; looks-- {
		p := t.due.pop()
		k, r := t.timings.at(p.slot), t.table.record(p.slot)
		if k.state&isDue == 0 || r.id != p.id || k.expiry != p.expiry {
			continue // renewed or gone in the meantime
		}
		t.unset(p.slot, isDue)
		k.state |= isExpiring
		late := TTL(t.now - k.expiry)
		out = append(out, Due{ID: r.id, Token: r.token, Stamp: r.stamp, Late: late})
	}
	return out
}

// next returns an instant before which neither decide nor report has anything new.
func (t *tracker) next() (Instant, bool) {
	if t.silents > 0 {
		return t.now, true
	}
	return t.nextDue()
}

// nextDue returns an instant before which decide has nothing new.
func (t *tracker) nextDue() (Instant, bool) {
	if t.dues > 0 || t.promotion != nil {
		return t.now, true
	}
	at, ok := t.wheel.Next()
	group, some := t.nextGroup()
	if some && (!ok || group < Instant(at)) {
		return group, true
	}
	return Instant(at), ok
}
