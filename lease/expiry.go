package lease

import (
	"leasehold.dev/internal/wheel"
)

// flags are the stages of a lease between alive and gone. A lease without flags is simply alive.
type flags uint8

const (
	isDue      flags = 1 << iota // past its expiry, not decided yet
	isExpiring                   // the decision to end it is in flight
	isSilent                     // needs a checkpoint, not proposed yet
	isPending                    // a checkpoint is in flight
	isHeld                       // pending and past its expiry: the outcome comes first
)

// timing is the primary's own data about a lease.
type timing struct {
	// expiry is the first instant at which the lease may end.
	expiry Instant
	// quiet is the instant from which the lease is silent.
	quiet Instant
	state flags
	// delayed is set if the lease has expired and expiry is the end of its lock delay. It is never
	// reset.
	delayed bool
	// group is the index of the lease's group, and prev and next are the slots of its neighbors
	// there; all plus 1, and 0 for none. While it is set, expiry and quiet are those from before
	// the lease joined.
	group, prev, next uint32
}

// tracker times the leases of a primary.
//
// A renewal changes only the two instants of a lease. Its entry in the wheel stays and fires at the
// old time, when place checks the instants again. So a renewed lease costs the wheel one move per
// half TTL, no matter how often it is renewed.
//
// A lease that existed before the promotion is timed before any other operation on it: see
// promotion.
//
// Invariants: a live lease that is timed is in exactly one of the wheel, a group, isDue, isExpiring
// and isHeld; at most one proposal of the tracker about a lease is in flight, so isExpiring
// excludes isPending; the wheel's instant is not after expiry, and without flags not after quiet.
type tracker struct {
	cfg       *Config
	table     *table          // read only
	countdown *paged[Instant] // of the Lessor
	counting  Instant         // of the Lessor
	began     Instant
	now       Instant
	timings   paged[timing] // by slot
	wheel     *wheel.Wheel
	due       dueQueue
	silent    []uint32 // slots, oldest first; one without isSilent is stale
	dues      int      // leases with isDue
	silents   int      // leases with isSilent
	// nearMisses counts renewals.
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

// advance moves the clock, and does part of the work that is due.
func (t *tracker) advance(now Instant) {
	t.now = now
	t.wheel.Advance(int64(now), t.cfg.AtOnce, t.place)
	t.advanceGroups()
	t.meetMore()
}

// start begins to time a new lease.
func (t *tracker) start(slot uint32) {
	ttl := t.table.record(slot).ttl
	t.resume(slot, t.now.after(ttl), t.now.after(t.cfg.untended(ttl)))
}

// resume begins to time a lease that existed before the promotion.
func (t *tracker) resume(slot uint32, expiry, quiet Instant) {
	*t.timings.grow(slot) = timing{expiry: expiry, quiet: quiet, delayed: t.table.delayed(slot)}
	t.place(slot)
}

// restart begins to time the next incarnation of a lease, or its lock delay. Earlier proposals
// about it are void. Without a lock delay, a promise to the previous holder may still be valid, and
// is not shortened.
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

// expiry returns the first instant at which a lease may end: 0 if the decision to end it was made.
func (t *tracker) expiry(slot uint32) Instant {
	k := t.timings.at(slot)
	if k.state&isExpiring != 0 {
		return 0
	}
	return t.end(slot)
}

// end returns the first instant at which a lease may end unless it is renewed, alone or with its
// group.
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

// place puts a lease where its instants and flags require: among the due or the silent leases, or
// into the wheel until something is due.
func (t *tracker) place(slot uint32) {
	k := t.timings.at(slot)
	switch {
	case k.state&(isDue|isExpiring) != 0 || k.group != 0:
	case k.expiry <= t.now && k.state&isPending != 0:
		// Deciding now would leave two proposals in flight; if one of them is dropped, it would be
		// unclear which.
		t.wheel.Remove(slot) // it may not have fired yet
		k.state |= isHeld
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

// unset clears flags of a lease and keeps the queues in step.
func (t *tracker) unset(slot uint32, f flags) {
	k := t.timings.at(slot)
	f &= k.state
	k.state &^= f
	if f&isDue != 0 {
		t.dues--
		if t.dues == 0 {
			t.due = dueQueue{} // apart from stale entries it was empty
		}
	}
	if f&isSilent != 0 {
		t.silents--
		if t.silents == 0 {
			t.silent = nil
		}
	}
}

// nearMiss is the fraction of the TTL (1/nearMiss) below which a renewal counts as a near miss.
const nearMiss = 4

// renew restarts a lease's TTL, if the token is its own or 0.
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
	// After a promotion, a lease may have more than its TTL left; a renewal does not shorten that.
	k.expiry = max(k.expiry, t.now.after(r.ttl))
	k.quiet = t.now.after(t.cfg.silence(r.ttl))
	n := Renewal{TTL: r.ttl, Token: r.token}
	if k.state != 0 || r.remaining != 0 {
		// Rare: the entry in the wheel may be too late for the new instants, or missing. A
		// checkpointed lease stays checkpointed until a command clears that.
		n.Clear = k.state&isPending != 0 || r.remaining != 0
		t.unset(slot, isDue|isSilent|isHeld)
		t.place(slot)
	}
	return n, nil
}

// touch restarts a lease's TTL, as required by a command. An earlier proposal about it is void, but
// still in flight.
func (t *tracker) touch(slot uint32) {
	t.part(slot, true)
	k, ttl := t.timings.at(slot), t.table.record(slot).ttl
	k.expiry = max(k.expiry, t.now.after(ttl))
	k.quiet = t.now.after(t.cfg.silence(ttl))
	t.unset(slot, isDue|isSilent|isHeld)
	t.place(slot)
}

// abandon makes a lease silent soon unless it is renewed. A lease in a group is tended.
func (t *tracker) abandon(slot uint32) {
	k, r := t.timings.at(slot), t.table.record(slot)
	quiet := t.now.after(t.cfg.untended(r.ttl))
	if k.state != 0 || r.remaining != 0 || k.quiet <= quiet || k.group != 0 {
		return // in progress already, or known to be silent
	}
	k.quiet = quiet
	t.place(slot)
}

// reinstate withdraws the proposal about a lease, if it is of a kind in f: it was dropped, or the
// lease has changed since.
func (t *tracker) reinstate(slot uint32, f flags) {
	if t.timings.at(slot).state&f == 0 {
		return
	}
	t.unset(slot, f|isHeld)
	t.place(slot)
}

// again returns how long a lease that is checkpointed now may stay silent until the next
// checkpoint. After a promotion this grows with the age of the tracker: otherwise members that
// restart every few seconds would count the same time repeatedly.
func (t *tracker) again(ttl TTL) TTL {
	age := TTL(t.now - t.began)
	return min(t.cfg.again(ttl), max(t.cfg.untended(ttl), age))
}

// hasten makes a lease silent now, unless a proposal about it is in flight.
func (t *tracker) hasten(slot uint32) {
	t.meet(slot)
	k := t.timings.at(slot)
	k.quiet = min(k.quiet, t.now)
	t.place(slot)
}

// decide returns up to most leases past their expiry, in order, and marks them. It returns fewer if
// many leases in the queue are no longer due.
func (t *tracker) decide(most int) []Due {
	var out []Due
	for looks := most + t.cfg.AtOnce/8; t.dues > 0 && len(out) < most && looks > 0; looks-- {
		p := t.due.pop()
		k, r := t.timings.at(p.slot), t.table.record(p.slot)
		if k.state&isDue == 0 || r.id != p.id || k.expiry != p.expiry {
			continue // renewed or gone since
		}
		t.unset(p.slot, isDue)
		k.state |= isExpiring
		late := TTL(t.now - k.expiry)
		out = append(out, Due{ID: r.id, Token: r.token, Stamp: r.stamp, Late: late})
	}
	return out
}

// next returns an instant before which decide and report have nothing new.
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
