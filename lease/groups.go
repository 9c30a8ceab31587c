package lease

import (
	"math"

	"leasehold.dev/internal/wheel"
)

// GroupID identifies a group. The caller chooses it. It must be larger than all earlier IDs.
type GroupID uint64

// OpenGroup creates an empty group for leases with the given TTL, if this member is primary. It
// panics if the ID is not larger than the IDs of all earlier groups.
//
// The leases of a group are renewed together. A group exists only on the primary that created it,
// and only while it is being renewed. A group that becomes silent ends. Its leases live on as if
// each had been renewed individually at the group's last renewal. As long as no leases join or
// leave, a group costs no more than a single lease, however large it is.
func (l *Lessor) OpenGroup(g GroupID, ttl TTL) {
	if g <= l.lastGroup {
		panic("lease: group ID is not higher than the last one")
	}
	l.lastGroup = g
	if l.tracker != nil {
		l.tracker.openGroup(g, ttl)
	}
}

// Join moves a lease into a group, usually just after a renewal. The lease leaves any other group.
// Join reports whether the lease is in the group now. It returns false if the group has ended, if
// the lease's TTL differs from the group's, or if the token does not match (0 matches any). It also
// returns false if the lease is silent or expiring, or has a checkpoint that must be cleared first.
func (l *Lessor) Join(g GroupID, id ID, token Token) bool {
	if l.tracker == nil {
		return false
	}
	slot, ok := l.alive(id)
	if !ok || token != 0 && l.table.record(slot).token != token {
		return false
	}
	return l.tracker.join(slot, g)
}

// Leave removes a lease from a group because the lease is no longer kept alive. It does nothing if
// the lease is not in the group. The lease becomes untended. Its TTL counts from its own last
// renewal, or from the group's last renewal at or before asOf, whichever is later. To use the
// group's last renewal, pass LastRenewal. The caller must guarantee that no later renewal of the
// group made a promise to the holder.
func (l *Lessor) Leave(g GroupID, id ID, asOf Instant) {
	if l.tracker == nil {
		return
	}
	if slot, ok := l.find(id); ok && g != 0 && l.tracker.groupOf(slot) == g {
		l.tracker.partAsOf(slot, false, asOf)
		l.tracker.abandon(slot)
		l.tracker.place(slot)
	}
}

// LastRenewal is later than any renewal of a group: see Lessor.Leave.
const LastRenewal Instant = math.MaxInt64

// GroupOf returns the group of a lease, or 0 if it has none.
func (l *Lessor) GroupOf(id ID) GroupID {
	if l.tracker == nil {
		return 0
	}
	slot, ok := l.find(id)
	if !ok {
		return 0
	}
	return l.tracker.groupOf(slot)
}

// HasGroup reports whether a group exists and has not ended.
func (l *Lessor) HasGroup(g GroupID) bool {
	return l.tracker != nil && l.tracker.liveGroup(g) != nil
}

// RenewGroup renews all leases of a group. The keeper may be notified only after a quorum has
// confirmed that this member still leads. The notification must include the result of Left at that
// time. RenewGroup returns the TTL of the leases. If the group has ended, it renews nothing and
// returns ok=false.
func (l *Lessor) RenewGroup(g GroupID) (ttl TTL, ok bool) {
	if l.tracker == nil {
		return 0, false
	}
	p := l.tracker.liveGroup(g)
	if p == nil {
		return 0, false
	}
	p.renew(l.tracker)
	return p.ttl, true
}

// Left returns the leases that have left a group since the last call because they ended, changed or
// joined another group. It omits leases removed by Lessor.Leave. It returns ok=false if the group
// has ended, which means that all its leases have left it.
func (l *Lessor) Left(g GroupID) (left []ID, ok bool) {
	if l.tracker == nil {
		return nil, false
	}
	p := l.tracker.liveGroup(g)
	if p == nil {
		return nil, false
	}
	left, p.left = p.left, nil
	return left, true
}

// EndGroup ends a group. untended means that its leases are no longer kept alive.
func (l *Lessor) EndGroup(g GroupID, untended bool) {
	if l.tracker == nil {
		return
	}
	if p := l.tracker.liveGroup(g); p != nil {
		if untended {
			p.abandoned = l.now.after(l.tracker.cfg.untended(p.ttl))
		}
		l.tracker.dissolve(p)
	}
}

// group holds leases with the same TTL that are renewed together. The leases form a list linked
// through their timings.
type group struct {
	id      GroupID
	place   uint32 // index in groups.list
	ttl     TTL
	renewed Instant
	quiet   Instant // when the group becomes silent
	// abandoned is the latest instant at which the leases become silent once the group has ended.
	// It is set when they are no longer kept alive.
	abandoned Instant
	first     uint32 // slot + 1; 0: none
	len       int
	left      []ID // see Lessor.Left
	over      bool
}

// maxLeft bounds the list that Lessor.Left returns. If more leases than that leave a group between
// two calls, the group ends.
const maxLeft = 10_000

// groups holds the groups of a tracker.
//
// Invariants: a group that has not ended is in of and in the wheel; a group that has ended is in
// over until all leases have left it.
type groups struct {
	list []*group
	free []uint32
	of   map[GroupID]*group
	// wheel contains each group. It fires by the time the group becomes silent.
	wheel *wheel.Wheel
	over  []*group
}

func newGroups(now Instant) groups {
	return groups{of: make(map[GroupID]*group), wheel: wheel.New(int64(now))}
}

func (t *tracker) openGroup(id GroupID, ttl TTL) {
	gs := &t.groups
	g := &group{id: id, place: uint32(len(gs.list)), ttl: ttl, abandoned: math.MaxInt64}
	if n := len(gs.free); n > 0 {
		g.place = gs.free[n-1]
		gs.free = gs.free[:n-1]
		gs.list[g.place] = g
	} else {
		gs.list = append(gs.list, g)
	}
	gs.of[id] = g
	g.renew(t)
	gs.wheel.Add(g.place, int64(g.quiet))
}

// renew records a renewal. As with leases, the entry in the wheel is not moved.
func (g *group) renew(t *tracker) {
	g.renewed, g.quiet = t.now, t.now.after(t.cfg.silence(g.ttl))
}

// liveGroup returns the group with the given ID, or nil if it has ended. It ends a group that has
// become silent, even if the wheel has not fired yet.
func (t *tracker) liveGroup(id GroupID) *group {
	g := t.groups.of[id]
	if g != nil && g.quiet <= t.now {
		t.dissolve(g)
		return nil
	}
	return g
}

// groupOf returns the ID of the group that the lease in a slot is in, or 0 if it is in none.
func (t *tracker) groupOf(slot uint32) GroupID {
	if g := t.groupAt(slot); g != nil {
		return g.id
	}
	return 0
}

// groupAt returns the group of the lease in a slot, or nil if there is none.
func (t *tracker) groupAt(slot uint32) *group {
	if k := t.timings.at(slot); k.group != 0 {
		return t.groups.list[k.group-1]
	}
	return nil
}

// join moves a lease into a group and out of the wheel.
func (t *tracker) join(slot uint32, id GroupID) bool {
	g, k, r := t.liveGroup(id), t.timings.at(slot), t.table.record(slot)
	switch {
	case g == nil || g.ttl != r.ttl || k.state != 0 || k.delayed || r.remaining != 0:
		return false
	case k.group == g.place+1:
		return true
	case t.end(slot) <= t.now || k.group == 0 && k.quiet <= t.now:
		return false
	case k.group != 0:
		t.part(slot, true)
	}
	t.wheel.Remove(slot)
	k.group, k.prev, k.next = g.place+1, 0, g.first
	if g.first != 0 {
		t.timings.at(g.first - 1).prev = slot + 1
	}
	g.first = slot + 1
	g.len++
	return true
}

// part removes a lease from its group, if it has one. The caller must then call place. If report is
// set, the group's keeper will be notified.
func (t *tracker) part(slot uint32, report bool) { t.partAsOf(slot, report, LastRenewal) }

// partAsOf is like part, but ignores renewals of the group after asOf.
func (t *tracker) partAsOf(slot uint32, report bool, asOf Instant) {
	g := t.groupAt(slot)
	if g == nil {
		return
	}
	k := t.timings.at(slot)
	asOf = min(asOf, g.renewed)
	k.expiry = max(k.expiry, asOf.after(g.ttl))
	k.quiet = min(max(k.quiet, asOf.after(t.cfg.silence(g.ttl))), g.abandoned)
	if k.prev == 0 {
		g.first = k.next
	} else {
		t.timings.at(k.prev - 1).next = k.next
	}
	if k.next != 0 {
		t.timings.at(k.next - 1).prev = k.prev
	}
	k.group, k.prev, k.next = 0, 0, 0
	g.len--
	if g.over {
		return
	}
	if report {
		g.left = append(g.left, t.table.record(slot).id)
	}
	if g.len == 0 || len(g.left) > maxLeft {
		t.dissolve(g)
	}
}

// settle removes a lease from its group if the group has ended or is silent.
func (t *tracker) settle(slot uint32) {
	if g := t.groupAt(slot); g != nil && (g.over || g.quiet <= t.now) {
		if !g.over {
			t.dissolve(g)
		}
		t.part(slot, false)
		t.place(slot)
	}
}

// dissolve ends a group, so that it can no longer be joined or renewed. Its leases are removed over
// several steps. A lease gets the same instants whichever step removes it, because every operation
// on a lease begins with settle.
func (t *tracker) dissolve(g *group) {
	g.over = true
	delete(t.groups.of, g.id)
	t.groups.wheel.Remove(g.place)
	t.groups.over = append(t.groups.over, g)
}

// advanceGroups dissolves silent groups, and removes as many of their leases as one step allows.
func (t *tracker) advanceGroups() {
	gs := &t.groups
	gs.wheel.Advance(int64(t.now), t.cfg.AtOnce, func(place uint32) {
		if g := gs.list[place]; g.quiet <= t.now {
			t.dissolve(g)
		} else {
			gs.wheel.Add(place, int64(g.quiet))
		}
	})
	looks := t.cfg.AtOnce
	for len(gs.over) > 0 && looks > 0 {
		g := gs.over[0]
		for ; g.first != 0 && looks > 0; looks-- {
			slot := g.first - 1
			t.part(slot, false)
			t.place(slot)
		}
		if g.first != 0 {
			return
		}
		looks--
		gs.list[g.place] = nil
		gs.free = append(gs.free, g.place)
		gs.over = gs.over[1:]
	}
	if len(gs.over) == 0 {
		gs.over = nil
	}
}

// nextGroup returns an instant before which no group needs work.
func (t *tracker) nextGroup() (Instant, bool) {
	if len(t.groups.over) > 0 {
		return t.now, true
	}
	at, ok := t.groups.wheel.Next()
	return Instant(at), ok
}
