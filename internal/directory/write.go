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
	// Touches are the keys that may change, in any branch.
	Touches []keyrange.Range
	// Ends are the leases that it ends. Their end deletes the keys that are attached at apply.
	Ends []lease.ID
	// Renews are the leases that it renews.
	Renews []lease.ID
	// Attaches are leases to which it may attach keys. AttachesAny is set if there may be others.
	Attaches    []lease.ID
	AttachesAny bool
	// Urgent is set if it waits only for caches, and not for other writes to the same keys.
	Urgent bool

	of      *Directory
	state   writeState
	number  uint64                      // in the order of admission
	marks   []keyrange.Range            // ranges that are pending because of it
	marked  map[keyrange.Range]struct{} // the same, if there are many
	behind  int                         // number of earlier writes that it waits for
	blocked int                         // number of drops that it waits for
	drops   int                         // number of drops that it has waited for, or does
	keys    int                         // of the leases that it ends, roughly, as of when it leaves
	last    lease.ID                    // the lease whose cache it waited for last, or 0
	next    []*Write                    // later writes that wait for it
	since   lease.Instant
}

// writeState is the state of a write.
type writeState uint8

const (
	unknown  writeState = iota // or irrelevant
	waiting                    // in the directory
	inFlight                   // it has left and has no outcome yet
	finished
)

// mark counts the writes that make a range pending.
type mark struct{ writes int }

// waitingWrites are the writes that wait, with the commands and writes that they wait for.
type waitingWrites struct {
	// marks are the pending ranges. tails are those for which a write waits, with the last such
	// write.
	marks keyrange.Tree[*mark]
	tails keyrange.Tree[*Write]
	links int    // number of writes in the next of another one
	last  uint64 // number of the last write
	work  int    // caches and keys examined in this step

	leases       map[lease.ID]*leaseWrites
	attachingAny int
	waiting      map[*Write]struct{}
	ready        []*Write
	// stuck are the writes that wait only for commands that attach keys, by number. Those in
	// stuckAny wait for attachingAny to become 0, the others are in leaseWrites.stuck. attachers
	// are writes with AttachesAny that wait until no stuck write precedes them, by number.
	stuck     btree.Map[uint64, *Write]
	stuckAny  []*Write
	attachers []*Write
	urgentWrites
}

// leaseWrites are the writes that concern one lease.
type leaseWrites struct {
	attaching int      // number of commands in flight that may attach keys
	renewing  int      // number of commands in flight that renew it
	ending    *Write   // the last one that waits to end it
	attacher  *Write   // the last one that waits to attach a key
	stuck     []*Write // those that wait for attaching to become 0
}

func (l *leaseWrites) none() bool {
	return l.attaching+l.renewing+len(l.stuck) == 0 && l.ending == nil && l.attacher == nil
}

// value returns *l, or the zero value for nil.
func (l *leaseWrites) value() leaseWrites {
	if l == nil {
		return leaseWrites{}
	}
	return *l
}

// change changes the record of a lease.
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

// Admit admits a write, and reports whether it may be proposed now. If not, Ready returns it later.
// It fails if too many writes wait.
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

// Spent reports whether admissions have used up Limits.Work in this step, so that further ones must
// wait for NextStep.
func (d *Directory) Spent() bool { return d.work >= d.limits.Work }

// Apart calls do and returns the work that it took, which does not count for Spent.
func (d *Directory) Apart(do func()) (work int) {
	before := d.work
	do()
	work, d.work = d.work-before, before
	return work
}

// NextStep begins a new step.
func (d *Directory) NextStep() { d.work, d.done = 0, 0 }

// Concerns reports whether a write concerns caches, or another write that does.
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

// heldKeys yields the keys of a lease that are within the hold of a cache.
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

// holdsKey reports whether a key of a lease is within the hold of a cache.
func (d *Directory) holdsKey(id lease.ID) bool {
	for range d.heldKeys(id) {
		return true
	}
	return false
}

// mark makes a range pending if it overlaps the hold of a cache. It returns false if the range is
// already pending because of w.
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

// manyMarks is the largest number of marks that are searched linearly.
const manyMarks = 16

// has reports whether exactly this range is pending because of w.
func (w *Write) has(r keyrange.Range) bool {
	if w.marked == nil {
		return slices.Contains(w.marks, r)
	}
	_, ok := w.marked[r]
	return ok
}

// queue makes a write wait for earlier ones. It returns false if there are too many.
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
		// Otherwise writes that attach keys could keep a lease from ending forever.
		behind(d.leases[id].value().ending)
	}
	if w.AttachesAny { // likewise; if none is stuck, passed releases it at once
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

// blockBy makes a write wait for the caches that may have keys of a range.
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

// await makes a write wait until a cache has dropped a range, unless the cache has expired.
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

// tryLeave makes a write ready if it waits for nothing, and then those that waited for it.
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

// passed removes and returns the attachers that no stuck write precedes.
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

// mayEnd marks the keys that are now attached to the leases that a write ends, since more may have
// been attached since it was admitted. It returns false if commands in flight may attach more, or
// if the write must wait for caches again.
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

// leave records that a write is in flight.
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

// unqueue ensures that no later write is queued behind w.
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

// follow releases and returns the writes that waited for w.
func (d *Directory) follow(w *Write) []*Write {
	for _, n := range w.next {
		n.behind--
	}
	next := w.next
	w.next = nil
	d.links -= len(next)
	return next
}

// Finish reports that a write, possibly one that still waits, has its outcome: it was applied or
// never will be. It ignores writes that Concerns rejected, that are finished, or that belong to
// another Directory.
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
	for _, n := range slices.Concat(d.follow(w), d.passed(), inNumber(stuck)) {
		d.tryLeave(n)
	}
	d.thinCrowd()
}

// settle undoes leave, and returns the writes that are no longer stuck.
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
