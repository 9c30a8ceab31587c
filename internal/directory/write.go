package directory

import (
	"slices"

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
type mark struct {
	writes int
	last   *Write // the last one that waits, and which others wait for
}

// under is what concerns a lease and is under way.
type under struct {
	attaching int    // commands that may attach keys, which have left
	renewing  int    // commands that renew it, which have left
	ending    *Write // the last one that waits to end it
	attacher  *Write // the last one that waits to attach a key
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
	if f(u); *u == (under{}) {
		delete(d.leases, id)
	}
}

// Admit takes a write, and reports whether it may be proposed now. If not, Ready
// returns it when it may. It returns ErrFull if too many wait.
func (d *Directory) Admit(w *Write) (now bool, err error) {
	if !d.Concerns(w) {
		return true, nil
	}
	if !w.Urgent && len(d.waiting) >= d.limits.Waiting {
		return false, ErrFull
	}
	d.last++
	w.number, w.since, w.state, w.of = d.last, d.now, waiting, d
	d.waiting[w] = struct{}{}
	for _, r := range w.Touches {
		d.mark(w, r)
	}
	for _, id := range w.Ends {
		for _, r := range d.heldKeys(id) {
			d.mark(w, r)
		}
	}
	d.queue(w)
	d.block(w)
	if d.tryLeave(w); w.state == underway {
		d.ready = d.ready[:len(d.ready)-1] // nothing else has become ready by this
		return true, nil
	}
	if !w.Urgent {
		for _, r := range w.marks {
			m, _ := d.marks.Get(r)
			m.last = w
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

// Concerns reports whether a write has anything to do with caches, or with a write
// that has.
func (d *Directory) Concerns(w *Write) bool {
	if len(d.caches) == 0 && len(d.leases) == 0 && len(d.waiting) == 0 {
		return false
	}
	if slices.ContainsFunc(w.Touches, d.held.Hits) || len(w.Ends) > 0 && d.attachingAny > 0 {
		return true
	}
	for _, id := range w.Ends {
		if d.leases[id].some().attaching > 0 || len(d.heldKeys(id)) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(w.Renews, func(id lease.ID) bool { return d.live[id] != nil })
}

// heldKeys returns the keys of a lease that some cache may hold.
func (d *Directory) heldKeys(id lease.ID) (out []keyrange.Range) {
	for _, k := range d.state.Keys(id) {
		if r := (keyrange.Range{Key: k}); d.held.Hits(r) {
			out = append(out, r)
		}
	}
	return out
}

// mark makes a range pending, if any cache may hold of it. It returns whether it was
// not pending because of w already.
func (d *Directory) mark(w *Write, r keyrange.Range) bool {
	if w.has(r) || !d.held.Hits(r) {
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

// queue puts a write behind those before it.
func (d *Directory) queue(w *Write) {
	behind := func(b *Write) {
		if b != nil && b != w {
			b.next = append(b.next, w)
			w.behind++
		}
	}
	if !w.Urgent {
		for _, r := range w.marks {
			for m := range d.marks.Overlapping(r) {
				behind(m.last)
			}
		}
	}
	for _, id := range w.Attaches {
		// Else those who attach could keep one from ending a lease for ever.
		behind(d.leases[id].some().ending)
	}
	if w.AttachesAny {
		for _, s := range sortedWrites(d.stuck) { // likewise
			if s.state == waiting {
				behind(s)
			}
		}
	}
	for _, id := range w.Ends {
		if !w.Urgent {
			behind(d.leases[id].some().attacher)
		}
	}
}

// block finds the caches that a write has to wait for.
func (d *Directory) block(w *Write) {
	for _, r := range w.marks {
		d.blockBy(w, r)
	}
	for _, id := range w.Renews {
		if c := d.live[id]; c != nil && len(c.drops) > 0 {
			c.renewers = append(c.renewers, w)
			w.blocked++
		}
	}
}

// blockBy finds the caches that may have something of a range.
func (d *Directory) blockBy(w *Write, r keyrange.Range) {
	for list := range d.held.Overlapping(r) {
		for _, c := range *list {
			if c.may(r) {
				d.await(w, c, r)
			}
		}
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
	if c.waiting == 1 {
		d.expect(c)
	}
}

// tryLeave lets a write go on, and those behind it, as far as they may.
func (d *Directory) tryLeave(w *Write) {
	for list := []*Write{w}; len(list) > 0; list = list[1:] {
		w := list[0]
		if w.state == waiting && w.behind == 0 && w.blocked == 0 && d.mayEnd(w) {
			d.leave(w)
			d.ready = append(d.ready, w)
			list = append(list, d.follow(w)...)
		}
	}
}

// mayEnd looks, for a write that ends leases, which keys are attached now. Nothing may
// be on its way that attaches more of them; and keys that were attached since it was
// admitted are to be dropped too.
func (d *Directory) mayEnd(w *Write) bool {
	for _, id := range w.Ends {
		if d.attachingAny > 0 || d.leases[id].some().attaching > 0 {
			d.stuck[w] = struct{}{}
			return false
		}
		for _, r := range d.heldKeys(id) {
			if d.mark(w, r) {
				d.blockBy(w, r)
			}
		}
	}
	return w.blocked == 0
}

// leave notes that a write is under way.
func (d *Directory) leave(w *Write) {
	w.state = underway
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
		if m, _ := d.marks.Get(r); m.last == w {
			m.last = nil
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
	return next
}

// Finish says that a write has its outcome: it is applied, or never will be. It may be
// one that waits. It does nothing for one that was of no concern, or is finished, or was
// given to another Directory.
func (d *Directory) Finish(w *Write) {
	if w.of != d || w.state == finished {
		return
	}
	if w.state == waiting {
		delete(d.waiting, w)
		delete(d.stuck, w)
		d.unqueue(w)
	} else {
		d.settle(w)
	}
	w.state = finished
	for _, r := range w.marks {
		m, _ := d.marks.Get(r)
		if m.writes--; m.writes == 0 {
			d.marks.Remove(r)
		}
	}
	for _, n := range d.follow(w) {
		d.tryLeave(n)
	}
	if len(d.stuck) == 0 {
		return
	}
	stuck := sortedWrites(d.stuck)
	clear(d.stuck)
	for _, s := range stuck {
		d.tryLeave(s)
	}
}

// settle takes back what leave noted.
func (d *Directory) settle(w *Write) {
	for _, id := range w.Renews {
		d.change(id, func(u *under) { u.renewing-- })
	}
	for _, id := range w.Attaches {
		d.change(id, func(u *under) { u.attaching-- })
	}
	if w.AttachesAny {
		d.attachingAny--
	}
}
