package directory

import (
	"iter"
	"slices"

	"github.com/tidwall/btree"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Write is a command as far as caches are concerned. Its caller sets the exported
// fields, and leaves them alone from when it gave it to Admit until Finish.
type Write struct {
	// Owner is the caller's.
	Owner any
	// Touches are the keys that may change, in whatever branch.
	Touches []keyrange.Range
	// Ends are the leases whose end takes away the keys that are attached then.
	Ends []lease.ID
	// Renews are the leases that live longer by it.
	Renews []lease.ID
	// Attaches are the leases to which it may attach keys, and AttachesAny says that
	// there may be others.
	Attaches    []lease.ID
	AttachesAny bool
	// Urgent says that it waits for no other write, only for caches. So it may overtake
	// writes to the same keys.
	Urgent bool

	of      *Directory
	state   writeState
	number  uint64                      // in the order of admission
	marks   []keyrange.Range            // what is pending because of it
	marked  map[keyrange.Range]struct{} // the same, if they are many
	behind  int                         // writes before it that it waits for
	blocked int                         // drops, of caches, that it waits for
	drops   int                         // that it has waited for or does
	keys    int                         // of the leases that it ends, about, when it leaves
	last    lease.ID                    // whose cache let it go on last; 0 for none
	next    []*Write
	since   lease.Instant
}

// writeState says where a write is.
type writeState uint8

const (
	unknown  writeState = iota // or of no concern
	waiting                    // in the directory
	underway                   // it has left and has no outcome yet
	finished
)

// mark says that a range is pending.
type mark struct{ writes int }

// line is the writes that wait, and what they wait for besides caches.
type line struct {
	// marks are what is pending, and tails those of the marks for which a write waits: the last
	// one that does.
	marks keyrange.Tree[*mark]
	tails keyrange.Tree[*Write]
	links int    // how often a write that has not left is in the next of another
	last  uint64 // number of the last write
	work  int    // caches and keys that were looked at in this step

	leases       map[lease.ID]*under
	attachingAny int
	waiting      map[*Write]struct{}
	ready        []*Write
	// stuck are writes that wait only for commands that attach keys, by number; those of
	// stuckAny wait for attachingAny to be 0, the others are in under.stuck. And attachers are
	// writes with AttachesAny that wait until no stuck one is before them, by number.
	stuck     btree.Map[uint64, *Write]
	stuckAny  []*Write
	attachers []*Write
	crowding
}

// under is what concerns a lease and is under way.
type under struct {
	attaching int      // commands that may attach keys, which have left
	renewing  int      // commands that renew it, which have left
	ending    *Write   // the last one that waits to end it
	attacher  *Write   // the last one that waits to attach a key
	stuck     []*Write // those that wait for attaching to be 0
}

func (u *under) none() bool {
	return u.attaching+u.renewing+len(u.stuck) == 0 && u.ending == nil && u.attacher == nil
}

// some returns what is under way, nothing for nil.
func (u *under) some() under {
	if u == nil {
		return under{}
	}
	return *u
}

// change lets f change what is under way of a lease.
func (d *Directory) change(id lease.ID, f func(*under)) {
	u := d.leases[id]
	if u == nil {
		u = &under{}
		d.leases[id] = u
	}
	if f(u); u.none() {
		delete(d.leases, id)
	}
}

// Admit takes a write, and reports whether it may be proposed now. If not, Ready
// returns it when it may. It fails if too many wait.
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
	if d.tryLeave(w); w.state == underway {
		d.ready = d.ready[:len(d.ready)-1] // nothing else has become ready by this
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
		d.change(id, func(u *under) { u.ending = w })
	}
	for _, id := range w.Attaches {
		d.change(id, func(u *under) { u.attacher = w })
	}
	return false, nil
}

// Spent reports whether as much was looked at in this step as a step may last, so that what
// else is to be admitted has to wait for the next, which NextStep begins.
func (d *Directory) Spent() bool { return d.work >= d.limits.Work }

// Apart does something, and returns how much was looked at for it. That does not count for Spent.
func (d *Directory) Apart(do func()) (work int) {
	before := d.work
	do()
	work, d.work = d.work-before, before
	return work
}

// NextStep says that a step is over.
func (d *Directory) NextStep() { d.work, d.done = 0, 0 }

// Concerns reports whether a write has anything to do with caches, or with a write
// that has.
func (d *Directory) Concerns(w *Write) bool {
	if len(d.holds.caches) == 0 && len(d.leases) == 0 && len(d.waiting) == 0 {
		return false
	}
	if slices.ContainsFunc(w.Touches, d.holds.held.Hits) || len(w.Ends) > 0 && d.attachingAny > 0 {
		return true
	}
	for _, id := range w.Ends {
		if d.leases[id].some().attaching > 0 || d.holdsKey(id) {
			return true
		}
	}
	return slices.ContainsFunc(w.Renews, func(id lease.ID) bool { return d.holds.live[id] != nil })
}

// heldKeys returns the keys of a lease that some cache may hold.
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

// holdsKey reports whether some cache may hold a key of a lease.
func (d *Directory) holdsKey(id lease.ID) bool {
	for range d.heldKeys(id) {
		return true
	}
	return false
}

// mark makes a range pending, if any cache may hold of it. It returns whether it was
// not pending because of w already.
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

// manyMarks is how many marks are looked through one by one.
const manyMarks = 16

// has reports whether exactly this range is pending because of w.
func (w *Write) has(r keyrange.Range) bool {
	if w.marked == nil {
		return slices.Contains(w.marks, r)
	}
	_, ok := w.marked[r]
	return ok
}

// queue puts a write behind those before it. It reports false if these are too many.
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
		// Otherwise writes that attach keys could keep one from ending a lease for
		// ever.
		behind(d.leases[id].some().ending)
	}
	if w.AttachesAny { // likewise; if none is stuck, passed lets it go on at once
		d.attachers = append(d.attachers, w)
		w.behind++
	}
	for _, id := range w.Ends {
		if !w.Urgent {
			behind(d.leases[id].some().attacher)
		}
	}
	return true
}

// block finds the caches that a write has to wait for.
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

// blockBy finds the caches that may have something of a range.
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

// await lets a write wait until a cache has dropped a range, unless the cache's
// lease has passed its expiry.
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

// tryLeave lets a write go on, and those behind it, as far as they may.
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

// passed returns the writes that may attach keys to any lease, and no longer wait for one that
// is stuck.
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

// mayEnd looks, for a write that ends leases, which keys are attached now. Nothing may
// be on its way that attaches more of them; and keys that were attached since it was
// admitted are to be dropped too.
func (d *Directory) mayEnd(w *Write) bool {
	for _, id := range w.Ends {
		if d.attachingAny > 0 {
			d.stuckAny = append(d.stuckAny, w)
		} else if u := d.leases[id]; u.some().attaching > 0 {
			u.stuck = append(u.stuck, w)
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

// leave notes that a write is under way.
func (d *Directory) leave(w *Write) {
	w.state = underway
	if w.Urgent {
		d.urgent++
		d.endingKeys += w.keys
	}
	delete(d.waiting, w)
	d.unqueue(w)
	for _, id := range w.Renews {
		d.change(id, func(u *under) { u.renewing++ })
	}
	for _, id := range w.Attaches {
		d.change(id, func(u *under) { u.attaching++ })
	}
	if w.AttachesAny {
		d.attachingAny++
	}
}

// unqueue sees to it that nobody queues behind a write any more.
func (d *Directory) unqueue(w *Write) {
	for _, r := range w.marks {
		if b, _ := d.tails.Get(r); b == w {
			d.tails.Remove(r)
		}
	}
	for _, id := range w.Ends {
		d.change(id, func(u *under) {
			if u.ending == w {
				u.ending = nil
			}
		})
	}
	for _, id := range w.Attaches {
		d.change(id, func(u *under) {
			if u.attacher == w {
				u.attacher = nil
			}
		})
	}
}

// follow returns those that waited for a write.
func (d *Directory) follow(w *Write) []*Write {
	for _, n := range w.next {
		n.behind--
	}
	next := w.next
	w.next = nil
	d.links -= len(next)
	return next
}

// Finish says that a write has its outcome: it is applied, or never will be. It may be
// one that waits. It does nothing for one that was of no concern, or is finished, or was
// given to another Directory.
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
	d.thin()
}

// settle takes back what leave noted, and returns the writes that were stuck because of it.
func (d *Directory) settle(w *Write) (stuck []*Write) {
	if w.Urgent {
		d.urgent--
		d.endingKeys -= w.keys
	}
	for _, id := range w.Renews {
		d.change(id, func(u *under) { u.renewing-- })
	}
	for _, id := range w.Attaches {
		d.change(id, func(u *under) {
			if u.attaching--; u.attaching == 0 {
				stuck = append(stuck, u.stuck...)
				u.stuck = nil
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
