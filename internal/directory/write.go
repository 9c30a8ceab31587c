package directory

import (
	"iter"
	"slices"

	"github.com/tidwall/btree"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Write is the part of a command that concerns caches. The caller sets the exported fields, and
// must not change them between Admit and Finish.
type Write struct {
	// Owner is for the caller's use.
	Owner any
	// Touches lists the keys that may change, in any branch.
	Touches []keyrange.Range
	// Ends lists the leases that the write ends. When a lease ends, the keys attached to it at
	// apply time are deleted.
	Ends []lease.ID
	// Renews lists the leases that the write renews.
	Renews []lease.ID
	// Attaches lists leases that the write may attach keys to. AttachesAny is set if the write may
	// also attach keys to other leases.
	Attaches    []lease.ID
	AttachesAny bool
	// Urgent is set if the write waits only for caches, and not for other writes to the same keys.
	Urgent bool

	of      *Directory
	state   writeState
	number  uint64                      // numbered in order of admission
	marks   []keyrange.Range            // ranges that are pending because of this write
	marked  map[keyrange.Range]struct{} // the same ranges, if there are many
	behind  int                         // number of earlier writes that it waits for
	blocked int                         // number of drops that it waits for
	drops   int                         // number of drops that it is waiting for or has waited for
	keys    int                         // approximate number of keys on the leases that it ends
	last    lease.ID                    // lease of the cache that it waited for last, or 0
	next    []*Write                    // later writes that wait for it
	since   lease.Instant
}

// writeState is the state of a write.
type writeState uint8

const (
	unknown  writeState = iota // not admitted, or does not concern caches
	waiting                    // in the directory
	inFlight                   // has been passed on, but its outcome is not known yet
	finished
)

// mark counts the writes that make a range pending.
type mark struct{ writes int }

// waitingWrites contains the waiting writes, and the commands and writes that they wait for.
type waitingWrites struct {
	// marks contains the pending ranges. tails maps each range that writes are waiting for to the
	// last of those writes.
	marks keyrange.Tree[*mark]
	tails keyrange.Tree[*Write]
	links int    // total length of all next lists
	last  uint64 // number of the last write
	work  int    // number of caches and keys examined in this step

	leases       map[lease.ID]*leaseWrites
	attachingAny int
	waiting      map[*Write]struct{}
	ready        []*Write
	// stuck contains the writes that are waiting only for commands that attach keys, keyed by
	// number. The writes in stuckAny wait for attachingAny to become 0. The others are in
	// leaseWrites.stuck. attachers contains the writes with AttachesAny that must wait until no
	// stuck write precedes them, ordered by number.
	stuck     btree.Map[uint64, *Write]
	stuckAny  []*Write
	attachers []*Write
	urgentWrites
}

// leaseWrites tracks the writes that concern one lease.
type leaseWrites struct {
	attaching int      // number of commands in flight that may attach keys
	renewing  int      // number of commands in flight that renew the lease
	ending    *Write   // the last write that is waiting to end the lease
	attacher  *Write   // the last write that is waiting to attach a key
	stuck     []*Write // writes that wait for attaching to become 0
}

func (l *leaseWrites) none() bool {
	return l.attaching+l.renewing+len(l.stuck) == 0 && l.ending == nil && l.attacher == nil
}

// value returns *l, or the zero value if l is nil.
func (l *leaseWrites) value() leaseWrites {
	if l == nil {
		return leaseWrites{}
	}
	return *l
}

// change applies f to the record of a lease.
func (d *Directory) change(id lease.ID, f func(*leaseWrites)) {
	l := d.leases[id]
	if l == nil {
		l = &leaseWrites{}
		d.leases[id] = l
	}
	if f(l); l.none() {
		delete(d.leases, id)
	}
}

// Admit admits a write, and reports whether it can be proposed now. If it cannot, Ready returns it
// later. Admit fails if too many writes are waiting.
func (d *Directory) Admit(w *Write) (now bool, err error) {
	if !d.Concerns(w) {
		return true, nil
	}
	if !w.Urgent && len(d.waiting) >= d.limits.Waiting {
		return false, errFull
	}
	d.last++
	w.number, w.since, w.state, w.of = d.last, d.now, waiting, d
	d.waiting[w] = struct{}{}
	for _, r := range w.Touches {
		d.mark(w, r)
	}
	for _, id := range w.Ends {
		for r := range d.heldKeys(id) {
			d.mark(w, r)
		}
	}
	if !d.queue(w) {
		d.Finish(w)
		return false, errFull
	}
	d.block(w)
	if d.tryLeave(w); w.state == inFlight {
		d.ready = d.ready[:len(d.ready)-1] // only w has become ready
		return true, nil
	}
	if !w.Urgent {
		for _, r := range w.marks {
			if _, there := d.tails.Get(r); there {
				d.tails.Remove(r)
			}
			d.tails.Put(r, w)
		}
	}
	for _, id := range w.Ends {
		d.change(id, func(l *leaseWrites) { l.ending = w })
	}
	for _, id := range w.Attaches {
		d.change(id, func(l *leaseWrites) { l.attacher = w })
	}
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
	if len(d.holds.caches) == 0 && len(d.leases) == 0 && len(d.waiting) == 0 {
		return false
	}
	if slices.ContainsFunc(w.Touches, d.holds.held.Hits) || len(w.Ends) > 0 && d.attachingAny > 0 {
		return true
	}
	for _, id := range w.Ends {
		if d.leases[id].value().attaching > 0 || d.holdsKey(id) {
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

// mark makes a range pending if it overlaps the ranges held for any cache. It returns false if
// there is no overlap, or if the range is already pending because of w.
func (d *Directory) mark(w *Write, r keyrange.Range) bool {
	if w.has(r) || !d.holds.held.Hits(r) {
		return false
	}
	w.marks = append(w.marks, r)
	if len(w.marks) > manyMarks {
		if w.marked == nil {
			w.marked = make(map[keyrange.Range]struct{})
			for _, r := range w.marks {
				w.marked[r] = struct{}{}
			}
		}
		w.marked[r] = struct{}{}
	}
	m, ok := d.marks.Get(r)
	if !ok {
		m = &mark{}
		d.marks.Put(r, m)
	}
	m.writes++
	return true
}

// manyMarks is the maximum number of marks that are searched linearly.
const manyMarks = 16

// has reports whether exactly this range is pending because of w.
func (w *Write) has(r keyrange.Range) bool {
	if w.marked == nil {
		return slices.Contains(w.marks, r)
	}
	_, ok := w.marked[r]
	return ok
}

// queue makes a write wait for earlier writes. It returns false if there are too many of them.
func (d *Directory) queue(w *Write) bool {
	behind := func(b *Write) {
		if b != nil && b != w {
			b.next = append(b.next, w)
			w.behind++
			d.links++
		}
	}
	if !w.Urgent {
		for _, r := range w.marks {
			for b := range d.tails.Overlapping(r) {
				if d.links >= d.limits.Links {
					return false
				}
				behind(b)
			}
		}
	}
	for _, id := range w.Attaches {
		// Without this, writes that attach keys could keep a lease from ever ending.
		behind(d.leases[id].value().ending)
	}
	if w.AttachesAny { // for the same reason; if no write is stuck, passed releases it immediately
		d.attachers = append(d.attachers, w)
		w.behind++
	}
	for _, id := range w.Ends {
		if !w.Urgent {
			behind(d.leases[id].value().attacher)
		}
	}
	return true
}

// block makes a write wait for caches.
func (d *Directory) block(w *Write) {
	for _, r := range w.marks {
		d.blockBy(w, r)
	}
	for _, id := range w.Renews {
		if c := d.holds.live[id]; c != nil && len(c.drops) > 0 {
			c.renewers = append(c.renewers, w)
			w.blocked++
			w.drops++
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

// await makes a write wait until a cache has dropped a range. It does not wait for a cache that has
// expired.
func (d *Directory) await(w *Write, c *cache, r keyrange.Range) {
	x := d.drop(c, r)
	if d.over(c) {
		return
	}
	x.writes = append(x.writes, w)
	c.waiting++
	w.blocked++
	w.drops++
	if c.waiting == 1 {
		d.expect(c)
	}
}

// tryLeave makes a write ready if it has nothing left to wait for. It then tries the writes that
// were waiting for it.
func (d *Directory) tryLeave(w *Write) {
	for list := []*Write{w}; len(list) > 0; list = list[1:] {
		w := list[0]
		if w.state == waiting && w.behind == 0 && w.blocked == 0 && d.room(w) && d.mayEnd(w) {
			d.leave(w)
			d.ready = append(d.ready, w)
			list = append(list, d.follow(w)...)
		}
		list = append(list, d.passed()...)
	}
}

// passed removes and returns the attachers that are not preceded by a stuck write.
func (d *Directory) passed() (list []*Write) {
	if len(d.attachers) == 0 {
		return nil
	}
	first, _, any := d.stuck.Min()
	n := 0
	for ; n < len(d.attachers) && (!any || d.attachers[n].number < first); n++ {
		d.attachers[n].behind--
	}
	list, d.attachers = d.attachers[:n:n], d.attachers[n:]
	return list
}

// mayEnd marks the keys attached to the leases that a write ends. More keys may have been attached
// since the write was admitted. It returns false if commands in flight may attach more keys, or if
// the write must wait for caches again.
func (d *Directory) mayEnd(w *Write) bool {
	for _, id := range w.Ends {
		if d.attachingAny > 0 {
			d.stuckAny = append(d.stuckAny, w)
		} else if l := d.leases[id]; l.value().attaching > 0 {
			l.stuck = append(l.stuck, w)
		} else {
			continue
		}
		d.stuck.Set(w.number, w)
		return false
	}
	d.stuck.Delete(w.number)
	before := d.work
	for _, id := range w.Ends {
		for r := range d.heldKeys(id) {
			if d.mark(w, r) {
				d.blockBy(w, r)
			}
		}
	}
	w.keys = d.work - before
	return w.blocked == 0
}

// leave records that a write is now in flight.
func (d *Directory) leave(w *Write) {
	w.state = inFlight
	if w.Urgent {
		d.urgent++
		d.endingKeys += w.keys
	}
	delete(d.waiting, w)
	d.unqueue(w)
	for _, id := range w.Renews {
		d.change(id, func(l *leaseWrites) { l.renewing++ })
	}
	for _, id := range w.Attaches {
		d.change(id, func(l *leaseWrites) { l.attaching++ })
	}
	if w.AttachesAny {
		d.attachingAny++
	}
}

// unqueue ensures that no write admitted from now on waits for w.
func (d *Directory) unqueue(w *Write) {
	for _, r := range w.marks {
		if b, _ := d.tails.Get(r); b == w {
			d.tails.Remove(r)
		}
	}
	for _, id := range w.Ends {
		d.change(id, func(l *leaseWrites) {
			if l.ending == w {
				l.ending = nil
			}
		})
	}
	for _, id := range w.Attaches {
		d.change(id, func(l *leaseWrites) {
			if l.attacher == w {
				l.attacher = nil
			}
		})
	}
}

// follow releases and returns the writes that were waiting for w.
func (d *Directory) follow(w *Write) []*Write {
	for _, n := range w.next {
		n.behind--
	}
	next := w.next
	w.next = nil
	d.links -= len(next)
	return next
}

// Finish records that the outcome of a write is known: it was applied, or never will be. The write
// may still be waiting. Finish ignores writes that Concerns rejected, that are already finished, or
// that belong to another Directory.
func (d *Directory) Finish(w *Write) {
	if w.of != d || w.state == finished {
		return
	}
	var stuck []*Write
	if w.state == waiting {
		delete(d.waiting, w)
		d.stuck.Delete(w.number)
		d.unqueue(w)
	} else {
		stuck = d.settle(w)
	}
	w.state = finished
	for _, r := range w.marks {
		m, _ := d.marks.Get(r)
		if m.writes--; m.writes == 0 {
			d.marks.Remove(r)
		}
	}
	for _, n := range slices.Concat(d.follow(w), d.passed(), sortedByNumber(stuck)) {
		d.tryLeave(n)
	}
	d.drainCrowd()
}

// settle reverses leave, and returns the writes that are no longer stuck.
func (d *Directory) settle(w *Write) (stuck []*Write) {
	if w.Urgent {
		d.urgent--
		d.endingKeys -= w.keys
	}
	for _, id := range w.Renews {
		d.change(id, func(l *leaseWrites) { l.renewing-- })
	}
	for _, id := range w.Attaches {
		d.change(id, func(l *leaseWrites) {
			if l.attaching--; l.attaching == 0 {
				stuck = append(stuck, l.stuck...)
				l.stuck = nil
			}
		})
	}
	if !w.AttachesAny {
		return stuck
	}
	if d.attachingAny--; d.attachingAny == 0 {
		stuck = append(stuck, d.stuckAny...)
		d.stuckAny = nil
	}
	return stuck
}
