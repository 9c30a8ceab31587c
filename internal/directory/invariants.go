package directory

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// CheckInvariants compares all derived state with its source and returns the first inconsistency.
// It is slow: use it only in tests and the simulator.
func (d *Directory) CheckInvariants() error {
	for _, c := range d.holds.caches {
		if n := len(c.drops); n > 0 && (c.stopped || c.orphan && !c.joined) {
			return fmt.Errorf("%d ranges are pending for cache %d: %+v", n, c.token, c.orphanState)
		}
	}
	return cmp.Or(
		d.holds.checkInvariants(),
		d.pending.checkInvariants(maps.Values(d.holds.caches)),
		d.writes.checkInvariants(),
	)
}

// checkInvariants checks the caches and everything derived from them.
func (h *holds) checkInvariants() error {
	for list := range h.held.All() {
		if list.Len() == 0 {
			return errors.New("a range has no holder")
		}
	}
	spans, wide, open := 0, 0, 0
	for token, c := range h.caches {
		if c.token != token {
			return fmt.Errorf("cache %d is stored under token %d", c.token, token)
		}
		if err := cmp.Or(c.has.checkInvariants(), h.checkCache(c)); err != nil {
			return err
		}
		spans += c.has.len()
		if c.wide {
			wide++
		}
		if c.open {
			open++
		}
	}
	if h.spans != spans || h.wide != wide || h.open != open {
		return fmt.Errorf("%d spans, %d caches are wide and %d are open, but the counts are %d, %d and %d",
			spans, wide, open, h.spans, h.wide, h.open)
	}
	return nil
}

// checkCache checks that the record of a cache is consistent, and that the indexes contain it.
func (h *holds) checkCache(c *cache) error {
	gone, _ := h.gone.Get(c.token)
	if c.orphan == (h.live[c.id] == c) || !c.stopped && gone == c ||
		(c.orphan && !c.stopped) != (c.overAt != 0) ||
		c.stopped && (!c.orphan || c.wide || c.has.len() > 0) {
		return fmt.Errorf("cache %d has an inconsistent orphan state: %+v", c.token, c.orphanState)
	}
	for _, r := range c.ranges {
		list, ok := h.held.Get(r)
		if !ok {
			return errors.New("a hold is missing from the index")
		}
		if got, _ := list.Get(c.token); got != c {
			return errors.New("a holder is missing from the index")
		}
	}
	return nil
}

// checkInvariants checks the pending invalidations of all caches.
func (v *invalidations) checkInvariants(caches iter.Seq[*cache]) error {
	known := make(map[*cache]bool)
	for c := range caches {
		known[c] = true
		if err := cmp.Or(v.checkDrops(c), v.checkSchedules(c)); err != nil {
			return err
		}
	}
	return v.checkSending(known)
}

// checkDrops checks the pending invalidations of a cache.
func (v *invalidations) checkDrops(c *cache) error {
	writes, bytes, fresh := 0, 0, false
	for _, x := range c.drops {
		writes += len(x.writes)
		if fresh = fresh || x.seq == 0; fresh && x.seq != 0 {
			return errors.New("a sent drop follows an unsent one")
		}
		if got, _ := c.pending.Get(x.what); got != x {
			return errors.New("a drop is not indexed by its range")
		}
		bytes += bytesOf(x.what)
	}
	if !c.joined && c.bytes != bytes || c.joined && c.bytes != 0 {
		return fmt.Errorf("the drops take %d bytes, but the count is %d", bytes, c.bytes)
	}
	pending := len(slices.Collect(c.pending.All()))
	if pending != len(c.drops) || c.waiting != writes ||
		(len(c.drops) > 0) != (v.unacked[c.token] == c) {
		return fmt.Errorf("cache %d: %d pending ranges, %d drops, %d waiting writes, want %d",
			c.token, pending, len(c.drops), c.waiting, writes)
	}
	return nil
}

// checkSchedules checks that a cache is scheduled if it needs attention.
func (v *invalidations) checkSchedules(c *cache) error {
	if (c.waiting > 0) != (c.endsAt != 0) || c.lateSince != 0 && c.waiting == 0 {
		return fmt.Errorf("cache %d: %d waiting writes, checked at %d, late: %v", c.token,
			c.waiting, c.endsAt, c.lateSince != 0)
	}
	if n := len(c.drops); c.joined && c.drops[0].seq != c.drops[n-1].seq {
		return fmt.Errorf("cache %d is not invalidated by a single message for the whole cache", c.token)
	}
	if len(c.drops) > 0 && len(c.routes) > 0 && !c.unsent && c.resendAt == 0 {
		return fmt.Errorf("cache %d has %d pending drops, and no invalidation is scheduled", c.token,
			len(c.drops))
	}
	for _, r := range c.ranges {
		if _, pending := c.pending.Get(r); c.joined && !pending {
			return errors.New("everything must be dropped, but something may be cached")
		}
	}
	return nil
}

// checkSending checks that no cache is scheduled twice for an invalidation, and that an
// invalidation is scheduled to be resent only if something is pending.
func (v *invalidations) checkSending(known map[*cache]bool) (err error) {
	v.late.entries.Scan(func(e scheduled) bool {
		if !known[e.c] || e.at != e.c.lateSince || e.at != e.c.drops[0].since+1 {
			err = errors.New("a slow cache no longer exists, or became slow at a different time")
		}
		return err == nil
	})
	named := make(map[*cache]bool)
	for _, c := range v.unsent {
		if named[c] {
			return fmt.Errorf("cache %d is scheduled twice", c.token)
		}
		named[c] = true
	}
	v.resends.entries.Scan(func(e scheduled) bool {
		if v.unacked[e.c.token] != e.c || len(e.c.routes) == 0 {
			err = fmt.Errorf("cache %d is scheduled again, with nothing pending", e.c.token)
		}
		return err == nil
	})
	return err
}

// checkInvariants checks the writes and everything derived from them.
func (q *waitingWrites) checkInvariants() error {
	for id, u := range q.leases {
		if u.none() {
			return fmt.Errorf("lease %d has an empty record", id)
		}
	}
	return cmp.Or(q.checkStuck(), q.checkLine(), q.checkWaiting())
}

// checkStuck checks the writes that wait for commands that attach keys: each must be found when the
// last such command is settled. It also checks that no waiting attacher is overlooked.
func (q *waitingWrites) checkStuck() (err error) {
	q.stuck.Scan(func(number uint64, w *Write) bool {
		found := q.attachingAny > 0 && slices.Contains(q.stuckAny, w)
		for _, id := range w.Ends {
			u := q.leases[id].value()
			found = found || u.attaching > 0 && slices.Contains(u.stuck, w)
		}
		if w.number != number || w.state != waiting || !found {
			err = fmt.Errorf("a write is stuck forever: %+v", *w)
		}
		return err == nil
	})
	return err
}

// checkLine checks the state that is derived from the waiting writes.
func (q *waitingWrites) checkLine() error {
	for id, u := range q.leases {
		if len(u.stuck) > 0 && u.attaching == 0 {
			return fmt.Errorf("writes are stuck, but no command attaches keys to lease %d", id)
		}
	}
	if len(q.stuckAny) > 0 && q.attachingAny == 0 {
		return errors.New("writes are stuck, but no command attaches keys to any lease")
	}
	if len(q.crowd) > 0 && q.urgentRoom() {
		return errors.New("urgent writes are waiting although there is room")
	}
	first, _, any := q.stuck.Min()
	if len(q.attachers) > 0 && (!any || q.attachers[0].number < first) {
		return errors.New("a write waits for another write that is no longer stuck")
	}
	if q.urgent < 0 {
		return fmt.Errorf("%d urgent writes are in flight", q.urgent)
	}
	tails := slices.Collect(q.tails.All())
	for _, w := range tails {
		if w.state != waiting {
			return errors.New("later writes would wait for a write that has left the queue")
		}
	}
	if q.links < 0 || len(q.waiting) == 0 && (q.links != 0 || len(tails) != 0) {
		return fmt.Errorf("%d links and %d tails, but %d waiting writes", q.links, len(tails),
			len(q.waiting))
	}
	return nil
}

// checkWaiting checks the writes that wait for caches.
func (q *waitingWrites) checkWaiting() error {
	for w := range q.waiting {
		if w.state != waiting || w.behind < 0 || w.blocked < 0 {
			return fmt.Errorf("a waiting write: %+v", *w)
		}
		_, stuck := q.stuck.Get(w.number)
		if w.behind+w.blocked == 0 && !stuck && !slices.Contains(q.crowd, w) {
			return fmt.Errorf("a write waits for nothing: %+v", *w)
		}
		if n := len(w.marks); n > manyMarks && len(w.marked) != n {
			return fmt.Errorf("%d of %d ranges are indexed", len(w.marked), n)
		}
		for i, r := range w.marks {
			if slices.Contains(w.marks[:i], r) {
				return errors.New("a range is pending twice because of one write")
			}
			if _, ok := q.marks.Get(r); !ok {
				return errors.New("a range that a write touches is not pending")
			}
		}
	}
	return nil
}

// checkInvariants checks that the ranges are sorted, disjoint, not adjacent, and not empty.
func (s *spans) checkInvariants() (err error) {
	last, first := "", true
	s.to.Scan(func(from, to string) bool {
		if to != "" && to <= from || !first && (last == "" || from <= last) {
			err = fmt.Errorf("the range from %q to %q follows one that ends at %q", from, to, last)
		}
		last, first = to, false
		return err == nil
	})
	return err
}
