package directory

import (
	"errors"
	"iter"
	"slices"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// This file decides when a write is admitted, and when it is held back for caches.

// errFull means that too many writes are waiting.
var errFull = errors.New("directory: too many writes are waiting for caches")

// Admit admits a write, and reports whether it can be proposed now. If it cannot, Ready returns it
// later. Admit fails if too many writes are waiting.
func (d *Directory) Admit(w *Write) (now bool, err error) {
	if !d.Concerns(w) {
		return true, nil
	}
	if !d.writes.add(w, d.now) {
		return false, errFull
	}
	for _, r := range w.Touches {
		if d.holds.held.Hits(r) {
			d.writes.mark(w, r)
		}
	}
	for _, id := range w.Ends {
		for r := range d.heldKeys(id) {
			d.writes.mark(w, r)
		}
	}
	if !d.writes.waitForEarlier(w) {
		d.Finish(w)
		return false, errFull
	}
	d.block(w)
	if d.tryLeave(w); d.writes.takeNew(w) {
		return true, nil
	}
	d.writes.queue(w)
	return false, nil
}

// Spent reports whether admissions have used up Limits.Work in this step, so that further
// admissions must wait for NextStep.
func (d *Directory) Spent() bool { return d.work >= d.limits.Work }

// Uncharged calls do, and returns how much work the call caused. That work does not count toward
// Spent.
func (d *Directory) Uncharged(do func()) (work int) {
	before := d.work
	do()
	work, d.work = d.work-before, before
	return work
}

// NextStep begins a new step.
func (d *Directory) NextStep() { d.work, d.done = 0, 0 }

// Concerns reports whether a write concerns caches, or interacts with another write that does.
func (d *Directory) Concerns(w *Write) bool {
	if len(d.holds.caches) == 0 && d.writes.none() {
		return false
	}
	if slices.ContainsFunc(w.Touches, d.holds.held.Hits) {
		return true
	}
	for _, id := range w.Ends {
		if d.writes.attaching(id) || d.holdsKey(id) {
			return true
		}
	}
	return slices.ContainsFunc(w.Renews, func(id lease.ID) bool { return d.holds.live[id] != nil })
}

// heldKeys yields the keys of a lease that are within the ranges held for any cache.
func (d *Directory) heldKeys(id lease.ID) iter.Seq[keyrange.Range] {
	return func(yield func(keyrange.Range) bool) {
		for k := range d.state.Keys(id) {
			d.work++
			if r := (keyrange.Range{Key: k}); d.holds.held.Hits(r) && !yield(r) {
				return
			}
		}
	}
}

// holdsKey reports whether any key of a lease is within the ranges held for any cache.
func (d *Directory) holdsKey(id lease.ID) bool {
	for range d.heldKeys(id) {
		return true
	}
	return false
}

// block makes a write wait for caches.
func (d *Directory) block(w *Write) {
	for _, r := range w.marks {
		d.blockBy(w, r)
	}
	for _, id := range w.Renews {
		if c := d.holds.live[id]; c != nil {
			d.pending.waitForAll(w, c)
		}
	}
}

// blockBy makes a write wait for the caches that may have keys in a range.
func (d *Directory) blockBy(w *Write, r keyrange.Range) {
	for list := range d.holds.held.Overlapping(r) {
		d.work += list.Len()
		list.Scan(func(_ lease.Token, c *cache) bool {
			if c.may(r) {
				d.await(w, c, r)
			}
			return true
		})
	}
}

// dropWork is the cost of adding a drop, relative to the cost of examining a cache.
const dropWork = 32

// await makes a write wait until a cache has dropped a range. It does not wait for a cache that has
// expired.
func (d *Directory) await(w *Write, c *cache, r keyrange.Range) {
	x, added := d.pending.drop(c, r, d.now)
	if added {
		d.work += dropWork
	}
	if d.over(c) {
		return
	}
	d.pending.wait(w, c, x)
	if c.waiting == 1 {
		d.expect(c)
	}
}

// tryLeave makes a write ready if it has nothing left to wait for. It then tries the writes that
// were waiting for it.
func (d *Directory) tryLeave(w *Write) {
	for list := []*Write{w}; len(list) > 0; list = list[1:] {
		if w := list[0]; d.writes.mayLeave(w) && !d.blockAgain(w) {
			list = append(list, d.writes.leave(w)...)
		}
		list = append(list, d.writes.passed()...)
	}
}

// blockAgain marks the keys attached to the leases that a write ends, because more keys may have
// been attached since the write was admitted. It reports whether the write must wait for caches
// again.
func (d *Directory) blockAgain(w *Write) bool {
	before := d.work
	for _, id := range w.Ends {
		for r := range d.heldKeys(id) {
			if d.writes.mark(w, r) {
				d.blockBy(w, r)
			}
		}
	}
	w.keys = d.work - before
	return w.blocked > 0
}

// unblock records that each of the writes has one less drop to wait for. by is the lease of the
// cache.
func (d *Directory) unblock(by lease.ID, writes []*Write) {
	for _, w := range writes {
		w.unblock(by)
		d.tryLeave(w)
	}
}

// Finish records that the outcome of a write is known: it was applied, or never will be. The write
// may still be waiting. Finish ignores writes that Concerns rejected, that are already finished, or
// that belong to another Directory.
func (d *Directory) Finish(w *Write) {
	for _, n := range d.writes.finish(w) {
		d.tryLeave(n)
	}
	for n := d.writes.takeCrowded(); n != nil; n = d.writes.takeCrowded() {
		d.tryLeave(n)
	}
}
