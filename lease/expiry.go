package lease

import (
	"leasehold.dev/internal/wheel"
)

// flags are where a lease is on its way from alive to gone. A lease with none
// is simply alive.
type flags uint8

const (
	isDue      flags = 1 << iota // past its expiry, not yet decided about
	isExpiring                   // its end is decided, the outcome is not known
	isSilent                     // to be checkpointed, not yet proposed
	isPending                    // a checkpoint is proposed, the outcome is not known
	isHeld                       // pending and past its expiry: the outcome is awaited first
)

// timing is what the primary alone knows of a lease.
type timing struct {
	// expiry is the first instant at which the lease may end.
	expiry Instant
	// quiet is the instant from which on the lease is silent.
	quiet Instant
	state flags
	// delayed says that what ends at expiry is the lock delay of a lease that
	// is over. It never goes back.
	delayed bool
	// group is the place of the group that the lease is in, and prev and next are its neighbours'
	// slots there; all plus 1, and 0 for none. Then expiry and quiet are of before it joined.
	group, prev, next uint32
}

// tracker times the leases of a primary.
//
// A renewal only changes the two instants of a lease. Its entry in the wheel
// stays and fires at the old time, when place looks at the instants again: so a
// lease that is renewed costs the wheel one move in half its TTL, however often
// it is renewed.
//
// A lease that was there before this member was primary is met before anything
// else is done with it: see promotion.
//
// Invariants: a live lease that was met is in exactly one of the wheel, a group, isDue,
// isExpiring and isHeld; at most one proposal of the tracker about a lease is
// under way, so isExpiring excludes isPending; the wheel's instant is not after
// expiry, and without flags not after quiet.
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
	// promotion is nil when all leases are met.
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

// advance moves the clock, and does a part of what there is to do by now.
func (t *tracker) advance(now Instant) {
	t.now = now
	t.wheel.Advance(int64(now), t.cfg.AtOnce, t.place)
	t.advanceGroups()
	t.meetMore()
}

// start begins to time a lease that was just granted.
func (t *tracker) start(slot uint32) {
	ttl := t.table.record(slot).ttl
	t.resume(slot, t.now.after(ttl), t.now.after(t.cfg.untended(ttl)))
}

// resume begins to time a lease that was there before this member was primary.
func (t *tracker) resume(slot uint32, expiry, quiet Instant) {
	*t.timings.grow(slot) = timing{expiry: expiry, quiet: quiet, delayed: t.table.delayed(slot)}
	t.place(slot)
}

// restart begins to time the next incarnation of a lease, or its lock delay. What was
// proposed about it before is void. Without a delay a promise to the holder
// before may still run, and nothing is taken back from it.
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

// expiry returns the first instant at which a lease may end: one whose end is
// decided, at once.
func (t *tracker) expiry(slot uint32) Instant {
	k := t.timings.at(slot)
	if k.state&isExpiring != 0 {
		return 0
	}
	return t.end(slot)
}

// end returns the first instant at which a lease may end unless it is renewed, by itself or with
// its group.
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

// place puts a lease where its instants and flags say: among the due or the
// silent, or into the wheel until there is something to do about it.
func (t *tracker) place(slot uint32) {
	k := t.timings.at(slot)
	switch {
	case k.state&(isDue|isExpiring) != 0 || k.group != 0:
	case k.expiry <= t.now && k.state&isPending != 0:
		// Deciding now would leave two proposals under way, and nobody could
		// tell which of them was dropped if one is.
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

// unset takes flags off a lease and keeps the queues in step.
func (t *tracker) unset(slot uint32, f flags) {
	k := t.timings.at(slot)
	f &= k.state
	k.state &^= f
	if f&isDue != 0 {
		t.dues--
		if t.dues == 0 {
			t.due = dueQueue{} // but for stale entries it was empty
		}
	}
	if f&isSilent != 0 {
		t.silents--
		if t.silents == 0 {
			t.silent = nil
		}
	}
}

// nearMiss is of which part of its TTL less was left of a lease whose renewal was nearly too late.
const nearMiss = 4

// renew starts a lease's TTL anew, if the token is its own, or 0.
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
	// A promotion may have given more than a TTL; a renewal takes nothing back.
	k.expiry = max(k.expiry, t.now.after(r.ttl))
	k.quiet = t.now.after(t.cfg.silence(r.ttl))
	n := Renewal{TTL: r.ttl, Token: r.token}
	if k.state != 0 || r.remaining != 0 {
		// Rare: the entry in the wheel may be too late for the new instants, or
		// not be there. What is checkpointed stays so until that is cleared.
		n.Clear = k.state&isPending != 0 || r.remaining != 0
		t.unset(slot, isDue|isSilent|isHeld)
		t.place(slot)
	}
	return n, nil
}

// touch starts a lease's TTL anew, because a command says so. What was proposed
// about it before is void, but it is still under way.
func (t *tracker) touch(slot uint32) {
	t.part(slot, true)
	k, ttl := t.timings.at(slot), t.table.record(slot).ttl
	k.expiry = max(k.expiry, t.now.after(ttl))
	k.quiet = t.now.after(t.cfg.silence(ttl))
	t.unset(slot, isDue|isSilent|isHeld)
	t.place(slot)
}

// abandon makes a lease silent soon unless it is renewed. One in a group is tended.
func (t *tracker) abandon(slot uint32) {
	k, r := t.timings.at(slot), t.table.record(slot)
	quiet := t.now.after(t.cfg.untended(r.ttl))
	if k.state != 0 || r.remaining != 0 || k.quiet <= quiet || k.group != 0 {
		return // on its way already, or known to be silent
	}
	k.quiet = quiet
	t.place(slot)
}

// reinstate takes back the proposal about a lease, if there is one of the kinds
// in f: it was dropped, or the lease has changed since it was made.
func (t *tracker) reinstate(slot uint32, f flags) {
	if t.timings.at(slot).state&f == 0 {
		return
	}
	t.unset(slot, f|isHeld)
	t.place(slot)
}

// again is how long a lease that is checkpointed now may stay silent until that is done
// once more. After a promotion this grows with the age of the tracker: members that restart
// every few seconds would else count the same time again and again.
func (t *tracker) again(ttl TTL) TTL {
	age := TTL(t.now - t.began)
	return min(t.cfg.again(ttl), max(t.cfg.untended(ttl), age))
}

// hasten makes a lease silent now, unless there is something under way about it.
func (t *tracker) hasten(slot uint32) {
	t.meet(slot)
	k := t.timings.at(slot)
	k.quiet = min(k.quiet, t.now)
	t.place(slot)
}

// decide takes up to most leases past their expiry, in order, and marks them.
// They are fewer if it meets too many that are not due any more.
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
