package holder

import (
	"maps"
	"slices"

	"leasehold.dev/lease"
)

// The lessor can put leases with the same TTL into a group, and renew them together from then on. A
// Set keeps track of this through the answers, which arrive over one connection in the order in
// which the lessor sent them. They list the leases that have joined a group, the groups that were
// renewed, and the leases that had left those groups.
//
// A lease counts as renewed with its group only if all earlier answers have arrived. So if a
// renewal of a group gets no answer, or if the connection ends, the Set drops the group. The
// validity of the leases does not change. They are renewed individually, and then join a group
// again.

// MaxLeave is the maximum number of leases that leave with one batch. If that many are waiting,
// they leave without waiting for the next renewal of a group.
const MaxLeave = 1024

// Joined records that the lessor has put a lease of a batch, which was just renewed, into a group.
func (s *Set) Joined(seq uint64, id lease.ID, g lease.GroupID) {
	l := s.leases[id]
	if l == nil || seq <= s.moved {
		return
	}
	if seq <= l.since || seq < l.parted || seq < s.groupsAnswered ||
		l.jeopardy || l.resting || len(l.asks) > 0 {
		s.part(l)
		s.leave[id] = struct{}{} // otherwise the lessor might keep it alive without a holder
		return
	}
	if l.group != nil && lease.GroupID(l.group.ID) == g {
		return
	}
	s.part(l)
	to := s.groups[g]
	if to == nil {
		to = &held{
			Held: Held{ID: lease.ID(g), TTL: l.TTL}, until: l.until, bound: unbound, members: []*held{},
		}
		s.groups[g] = to
		s.turns.add(to, l.at[turns])
		s.ends.add(to, to.end())
	}
	s.turns.remove(l)
	s.ends.remove(l)
	l.group, l.member = to, len(to.members)
	to.members = append(to.members, l)
	if l.until < to.until {
		to.until = l.until
		s.ends.set(to, to.end())
	}
}

// GroupRenewed records that a group of a batch was renewed, except for the leases that have left
// it.
func (s *Set) GroupRenewed(seq uint64, g lease.GroupID, ttl lease.TTL, left []lease.ID) {
	to, f := s.groupAnswered(seq, g)
	if to == nil {
		return
	}
	if ttl != to.TTL { // the group has ended
		s.dissolve(to, s.now)
		return
	}
	for _, id := range left {
		if l := s.leases[id]; l != nil && l.group == to {
			s.part(l)
		}
	}
	if s.groups[g] != to || f == nil {
		return // the group is empty, or the answer is too late
	}
	to.until = max(to.until, s.validUntil(f.sent, ttl))
	s.ends.set(to, to.end())
	if to.asked <= seq {
		to.asked, to.tries = 0, 0
		s.turns.set(to, s.renewAt(to, f.sent))
	}
}

// GroupUnknown records that a renewal of a group in a batch will not be answered.
func (s *Set) GroupUnknown(seq uint64, g lease.GroupID) {
	if to, _ := s.groupAnswered(seq, g); to != nil {
		s.dissolve(to, min(to.at[turns], s.backOff(to)))
	}
}

// Moved records that future batches use another connection, which has no groups yet.
func (s *Set) Moved() {
	s.moved = s.seq
	clear(s.leave)
	for _, g := range slices.Sorted(maps.Keys(s.groups)) {
		s.dissolve(s.groups[g], s.groups[g].at[turns])
	}
}

// groupAnswered returns the group of a batch (nil if there is none) and the batch (nil if it has
// been dropped).
func (s *Set) groupAnswered(seq uint64, g lease.GroupID) (*held, *flight) {
	f := s.landed(seq)
	if seq <= s.moved {
		return nil, nil // a group of the new connection may have the same ID
	}
	s.groupsAnswered = max(s.groupsAnswered, seq)
	to := s.groups[g]
	if to == nil {
		return nil, f
	}
	if len(to.open) == 0 || to.open[0] != seq {
		// An earlier answer is missing. It may have listed leases that have left.
		s.dissolve(to, to.at[turns])
		return nil, f
	}
	to.open = to.open[1:]
	return to, f
}

// LeaveAgain records that a batch got no answer. The lessor may not have removed the leases that
// were leaving with it.
func (s *Set) LeaveAgain(seq uint64, ids []lease.ID) {
	if seq <= s.moved {
		return
	}
	for _, id := range ids {
		if l := s.leases[id]; l != nil {
			s.part(l)
		}
		s.leave[id] = struct{}{}
	}
}

// part removes a lease from its group, if it has one. The validity of the lease does not change.
// From now on it is scheduled individually.
func (s *Set) part(l *held) {
	g := l.group
	if g == nil {
		return
	}
	l.until = max(l.until, g.until)
	last := g.members[len(g.members)-1]
	g.members[l.member], last.member = last, l.member
	g.members = g.members[:len(g.members)-1]
	l.group = nil
	s.turns.add(l, g.at[turns])
	s.ends.add(l, l.end())
	if len(g.members) == 0 {
		s.forget(g)
	}
}

// dissolve removes all leases from a group, schedules them for an instant, and drops the group.
func (s *Set) dissolve(g *held, at instant) {
	s.turns.set(g, at)
	for len(g.members) > 0 {
		s.part(g.members[len(g.members)-1])
	}
}

func (s *Set) forget(g *held) {
	delete(s.groups, lease.GroupID(g.ID))
	s.turns.remove(g)
	s.ends.remove(g)
}

// dueGroups adds to a batch the groups that are due.
func (s *Set) dueGroups(b *Batch, soon instant) {
	for {
		g, ok := s.turns.first(soon)
		if !ok || g.members == nil || g.asked == b.Seq {
			break
		}
		s.tried(g, b)
		g.open = append(g.open, b.Seq)
		b.Groups = append(b.Groups, lease.GroupID(g.ID))
	}
	b.Leave = slices.Sorted(maps.Keys(s.leave))
	b.Leave = b.Leave[:min(len(b.Leave), MaxLeave)]
	for _, id := range b.Leave {
		delete(s.leave, id)
		if l := s.leases[id]; l != nil {
			s.part(l) // it may have joined again after it was scheduled to leave
			l.parted = b.Seq
		}
	}
}
