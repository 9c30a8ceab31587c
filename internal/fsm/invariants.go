package fsm

import (
	"cmp"
	"fmt"
	"maps"

	"leasehold.dev/lease"
)

// CheckInvariants walks the entire state, including leases and store, and returns the first
// inconsistency. It is slow, and intended for tests and the simulator. It checks nothing while a
// command is partly applied.
func (m *Machine) CheckInvariants() error {
	if m.Midway() {
		return nil
	}
	return cmp.Or(m.checkInvariants(), m.lessor.CheckInvariants(), m.store.CheckInvariants())
}

// checkInvariants compares the attachments of leases with the newest records of the keys. It also
// checks that only live leases hold ranges.
func (m *Machine) checkInvariants() error {
	attached := 0
	for kv := range m.store.View().Ascend("\x00", "\x00", 0) {
		if got := m.lessor.LeaseOf(kv.Key); got != lease.ID(kv.Lease) {
			return fmt.Errorf("key %q: the record has lease %d, but the lessor has %d",
				kv.Key, kv.Lease, got)
		}
		if kv.Lease != 0 {
			attached++
		}
	}
	if n := m.lessor.Attached(); n != attached {
		return fmt.Errorf("the lessor has %d attached keys, but the store has %d", n, attached)
	}
	for info := range m.lessor.Leases() {
		if info.Bound && m.lessor.KeyCount(info.ID) != 1 {
			return fmt.Errorf("lease %d is bound to the keys %q, want exactly one key",
				info.ID, m.lessor.Keys(info.ID))
		}
	}
	return cmp.Or(m.checkSessions(), m.checkAccounts(), m.checkHeld())
}

// checkAccounts compares the counts of each principal with its leases. The store checks its own
// counts.
func (m *Machine) checkAccounts() error {
	counts := make(map[string]leaseAccount)
	for id, who := range m.lessor.View().Accounts() {
		info, ok := m.lessor.Lookup(id)
		if !ok {
			return fmt.Errorf("the account of %q has lease %d, which does not exist", who, id)
		}
		n := counts[who]
		counts[who] = leaseAccount{n.leases + 1, n.bytes + info.Bytes()}
	}
	for who, n := range m.meta.accounts.byName {
		if counts[who] != *n {
			return fmt.Errorf("the lease counts of %q are %+v, want %+v", who, *n, counts[who])
		}
		delete(counts, who)
	}
	if len(counts) > 0 {
		return fmt.Errorf("leases belong to accounts without counts: %v", counts)
	}
	return nil
}

// checkHeld compares the counts of held ranges with the actual ranges.
func (m *Machine) checkHeld() error {
	ranges, owned, longest := 0, make(map[string]int), lease.TTL(0)
	for id, held := range m.AllHolds().All() {
		if info, ok := m.lessor.Lookup(id); !ok || info.Delayed {
			return fmt.Errorf("lease %d holds ranges but is not live", id)
		}
		ranges += len(held)
		info, _ := m.lessor.Lookup(id)
		owned[info.Owner] += len(held)
		longest = max(longest, info.TTL)
	}
	for o := range m.AllHolds().Orphans() {
		if info, _ := m.lessor.Lookup(o.Lease.ID); info.Token == o.Lease.Token {
			return fmt.Errorf("live lease %d has an orphan", info.ID)
		}
		ranges += len(o.Ranges)
		owned[o.Lease.Owner] += len(o.Ranges)
		longest = max(longest, o.Lease.TTL)
	}
	if ranges != m.holds.ranges || !maps.Equal(owned, m.holds.owned) || longest != m.CacheTTL() {
		return fmt.Errorf("held ranges: %d in total, %v by owner, longest TTL %d; "+
			"the counts are %d, %v, %d",
			ranges, owned, longest, m.holds.ranges, m.holds.owned, m.CacheTTL())
	}
	return nil
}

// checkSessions compares the counts of sessions and session owners with the sessions.
func (m *Machine) checkSessions() error {
	l, n, bytes := m.sessions, 0, int64(0)
	used := make(map[*sessionOwner][]*session) // most recently used first
	for s := l.root.next; s != &l.root; s = s.next {
		n++
		size, err := s.check()
		if err != nil {
			return err
		}
		if l.byID[s.ID] != s || s.next.prev != s || s.ID > l.last || size != s.bytes {
			return fmt.Errorf("session %d (last ID %d): the count is %d bytes, want %d",
				s.ID, l.last, s.bytes, size)
		}
		if s.owner == nil || s.owner.user != s.user || l.owners.byUser[s.user] != s.owner {
			return fmt.Errorf("session %d of %q has the wrong owner", s.ID, s.user)
		}
		used[s.owner] = append(used[s.owner], s)
		bytes += size
	}
	if n != len(l.byID) || bytes != l.bytes || n > l.limits.sessions || bytes > l.limits.bytes {
		return fmt.Errorf("%d sessions in the list, %d in the index; %d bytes, but the count is %d",
			n, len(l.byID), bytes, l.bytes)
	}
	return l.owners.check(used)
}

// check returns the size of a session in bytes, or an error if its results are out of order.
func (s *session) check() (size int64, err error) {
	size = int64(len(s.user))
	for i := range s.answers {
		a := &s.answers[i]
		if a.number < s.settled || i > 0 && a.number <= s.answers[i-1].number {
			return 0, fmt.Errorf("session %d: answer %d is out of order", s.ID, a.number)
		}
		size += a.size
	}
	return size, nil
}

// check compares owners with their sessions, which are listed most recently used first. It checks
// the counts, the rings, and the positions of the owners in the rankings, which are heaps.
func (l *sessionOwners) check(used map[*sessionOwner][]*session) error {
	if len(l.byUser) != len(used) {
		return fmt.Errorf("%d session owners, want %d", len(l.byUser), len(used))
	}
	for o, list := range used {
		bytes, next := int64(0), &o.root
		for _, s := range list {
			if next.older != s || s.newer != next {
				return fmt.Errorf("session %d is out of order in the ring of %q", s.ID, o.user)
			}
			bytes, next = bytes+s.bytes, s
		}
		if next.older != &o.root || o.root.newer != next {
			return fmt.Errorf("the ring of %q does not contain the expected sessions", o.user)
		}
		if o.count != len(list) || o.bytes != bytes {
			return fmt.Errorf("%q has %d sessions with %d bytes, but the counts are %d and %d", o.user,
				len(list), bytes, o.count, o.bytes)
		}
	}
	for by := range measures {
		r := &l.ranked[by]
		if len(r.list) != len(used) {
			return fmt.Errorf("%d owners are ranked, want %d", len(r.list), len(used))
		}
		for i, o := range r.list {
			if o.places[by] != i || l.byUser[o.user] != o || i > 0 && r.Less(i, (i-1)/2) {
				return fmt.Errorf("%q is out of order in the ranking", o.user)
			}
		}
	}
	return nil
}
