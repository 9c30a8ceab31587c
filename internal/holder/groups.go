package holder

import (
	"maps"
	"slices"

	"leasehold.dev/lease"
)

// The lessor may have leases of one TTL in a group, and then renew them together. What a Set knows
// of that is told by answers, which come in the order in which the lessor gave them, over one
// connection: which leases have joined, and which groups were renewed without which leases. A
// lease counts as renewed with its group only if nothing in between may have been missed. So a
// group is forgotten when one of its renewals has no answer, or the connection ends: the leases
// are valid as they were, and are renewed by themselves, and join again.

// MaxLeave is how many leases leave with one batch at most. If so many wait to leave, they do not
// wait for the next renewal of a group.
const MaxLeave = 1024

// Joined says that a lease of a batch, which was just renewed, is in a group of the lessor.
func (s *Set) Joined(seq uint64, id lease.ID, g lease.GroupID) {
	l := s.leases[id]
	if l == nil || seq <= s.moved {
		return
	}
	if seq <= l.since || seq < l.parted || seq < s.told ||
		l.jeopardy || l.resting || len(l.asks) > 0 {
		s.part(l)
		s.leave[id] = struct{}{} // else the lessor might keep it for nobody
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

// GroupRenewed says that a group of a batch was renewed, but for the leases that have left it.
func (s *Set) GroupRenewed(seq uint64, g lease.GroupID, ttl lease.TTL, left []lease.ID) {
	to, f := s.groupAnswered(seq, g)
	if to == nil {
		return
	}
	if ttl != to.TTL { // it is over
		s.dissolve(to, s.now)
		return
	}
	for _, id := range left {
		if l := s.leases[id]; l != nil && l.group == to {
			s.part(l)
		}
	}
	if s.groups[g] != to || f == nil {
		return // nothing is left in it, or the answer is too late to be of use
	}
	to.until = max(to.until, s.validUntil(f.sent, ttl))
	s.ends.set(to, to.end())
	if to.asked <= seq {
		to.asked, to.tries = 0, 0
		s.turns.set(to, s.renewAt(to, f.sent))
	}
}

// GroupUnknown says that a group of a batch will get no other answer.
func (s *Set) GroupUnknown(seq uint64, g lease.GroupID) {
	if to, _ := s.groupAnswered(seq, g); to != nil {
		s.dissolve(to, min(to.at[turns], s.backOff(to)))
	}
}

// Moved says that batches go over another connection from now on, where there are no groups yet.
func (s *Set) Moved() {
	s.moved = s.seq
	clear(s.leave)
	for _, g := range slices.Sorted(maps.Keys(s.groups)) {
		s.dissolve(s.groups[g], s.groups[g].at[turns])
	}
}

// groupAnswered finds the group of a batch, nil for none, and the batch, nil if it is forgotten.
func (s *Set) groupAnswered(seq uint64, g lease.GroupID) (*held, *flight) {
	f := s.landed(seq)
	if seq <= s.moved {
		return nil, nil // another connection may have a group of the same ID
	}
	s.told = max(s.told, seq)
	to := s.groups[g]
	if to == nil {
		return nil, f
	}
	if len(to.open) == 0 || to.open[0] != seq {
		// An answer from before this one is missing, and may have said what has left.
		s.dissolve(to, to.at[turns])
		return nil, f
	}
	to.open = to.open[1:]
	return to, f
}

// LeaveAgain says that a batch had no answer: the lessor may not know which leases are to leave.
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

// part takes a lease out of its group, if it is in one: it is valid as it was, and has turns of its
// own.
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

// dissolve takes all leases out of a group, each with a turn at an instant, and forgets it.
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

// dueGroups takes the groups whose turn it is into a batch.
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
			s.part(l) // it may have joined again since it was to leave
			l.parted = b.Seq
		}
	}
}
