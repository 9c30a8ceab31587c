// Package wheel implements a hierarchical timing wheel over dense integer handles.
//
// A [Wheel] stores an instant in milliseconds for each handle, and fires the handle when its clock
// reaches that instant. Adding and removing take constant time. Advancing takes amortized constant
// time per entry, no matter how far the clock jumps or how far away the instants are. That is
// because an entry moves down at most once per level.
//
// The caller must number its items densely from zero, like the slots of a slab. The wheel keeps an
// array of 16 bytes per handle, up to the largest handle ever added, and needs no allocation or
// pointer per entry. A Wheel is not safe for concurrent use and reads no clock. Entries that fire
// during the same Advance do so in no particular order.
package wheel

import (
	"fmt"
	"math/bits"
)

const (
	levelBits = 6 // 64 slots per level, so that their occupancy fits in one word
	slots     = 1 << levelBits
	// levels is enough levels of 64 slots each to cover every non-negative int64.
	levels = (63 + levelBits - 1) / levelBits

	// There are two lists in addition to the slots. One holds entries that were added after their
	// instant had passed. The other holds entries that Advance has removed from a slot, in order to
	// fire them or move them to a lower level.
	overdue = levels * slots
	firing  = overdue + 1
	lists   = firing + 1

	pageBits = 10
	pageSize = 1 << pageBits
)

const (
	noHandle uint32 = 1<<32 - 1 // end of a list
	absent          = noHandle  // value of prev if the handle is not in the wheel
	// headFlag in prev marks the first entry of a list. In that case, the other bits are the number
	// of the list, so an entry finds its list without knowing its level.
	headFlag uint32 = 1 << 31

	// maxHandle is the largest valid handle.
	maxHandle = headFlag - 1
)

// entry is the position of a handle. Invariant: prev == absent if and only if the handle is not in
// the wheel. If it is in the wheel, its neighbors point back to it.
type entry struct {
	at         int64
	prev, next uint32
}

// Wheel is a timing wheel. The zero value is not usable: call New.
type Wheel struct {
	pages []*[pageSize]entry
	// elapsed is how far the wheel has turned. Each level stands for one digit, of levelBits bits.
	// Invariant: for an entry in slot s of level v, the digits above v are the same as in elapsed,
	// and digit v is s, which is greater than digit v of elapsed. So lower levels come first, and
	// within a level, lower slots come first.
	elapsed int64
	// now is the time passed to the last Advance. Invariant: it equals elapsed, or is later while
	// there may be entries left to fire.
	now   int64
	heads [lists]uint32
	// occupied has one bit per slot of each level. The bit is set if the slot has entries.
	occupied [levels]uint64
	count    int
}

// New returns an empty wheel whose clock is at now, which must not be negative.
func New(now int64) *Wheel {
	if now < 0 {
		panic(fmt.Sprintf("wheel: negative time %d", now))
	}
	w := &Wheel{elapsed: now, now: now}
	for i := range w.heads {
		w.heads[i] = noHandle
	}
	return w
}

// Len returns the number of handles in the wheel.
func (w *Wheel) Len() int { return w.count }

// At returns the instant that the handle is scheduled for. ok is false if the handle is not in the
// wheel.
func (w *Wheel) At(handle uint32) (at int64, ok bool) {
	if int(handle>>pageBits) >= len(w.pages) {
		return 0, false
	}
	e := w.entry(handle)
	return e.at, e.prev != absent
}

// Add schedules the handle to fire at the instant at, or during the next Advance if that instant
// has passed. If the handle is already in the wheel, it is moved.
func (w *Wheel) Add(handle uint32, at int64) {
	if handle > maxHandle {
		panic(fmt.Sprintf("wheel: handle %d is too large", handle))
	}
	w.grow(handle)
	if w.entry(handle).prev != absent {
		w.unlink(handle)
	} else {
		w.count++
	}
	w.entry(handle).at = at
	w.place(handle)
}

// Remove removes the handle and reports whether it was in the wheel.
func (w *Wheel) Remove(handle uint32) bool {
	if _, ok := w.At(handle); !ok {
		return false
	}
	w.unlink(handle)
	w.count--
	return true
}

// Advance moves the clock to now. It removes every handle whose instant has come and then calls
// fire for it. fire can add and remove handles, including the one that it was called for. If fire
// adds a handle at an instant that has passed, the handle fires during the next Advance. Advance
// panics if now is before the current time.
//
// most limits the number of entries that Advance processes, so that the caller's steps stay short
// even if many entries are due at the same instant. The next calls fire the rest. Until they have
// done so, Next returns the current time.
func (w *Wheel) Advance(now int64, most int, fire func(handle uint32)) {
	if now < w.now {
		panic(fmt.Sprintf("wheel: clock went backward from %d to %d", w.now, now))
	}
	w.now = now
	if w.heads[firing] != noHandle { // left over from the previous call
		most = w.look(most, fire)
	} else {
		most = w.drain(overdue, most, fire)
	}
	for most > 0 {
		level, slot, start, ok := w.nearest()
		if !ok || start > now {
			w.elapsed = now
			return
		}
		w.elapsed = start
		most = w.drain(uint32(level*slots+slot), most, fire)
	}
}

// Next returns an instant before which nothing fires. ok is false if the wheel is empty. The
// instant is exact if the nearest entry is on the lowest level. Otherwise, advancing to it moves
// the nearest entry down at least one level.
func (w *Wheel) Next() (at int64, ok bool) {
	if w.heads[overdue] != noHandle || w.heads[firing] != noHandle {
		return w.now, true
	}
	_, _, at, ok = w.nearest()
	return max(at, w.now), ok
}

// nearest finds the first occupied slot and the instant at which it starts.
func (w *Wheel) nearest() (level, slot int, start int64, ok bool) {
	for level, mask := range w.occupied {
		if mask == 0 {
			continue
		}
		slot := bits.TrailingZeros64(mask)
		shift := uint(level * levelBits)
		// The digits above the level are the digits of elapsed, and the digits below are zero. A
		// shift by 64 or more (above the top level) yields 0, as it should.
		above := uint64(w.elapsed) >> (shift + levelBits) << (shift + levelBits)
		return level, slot, int64(above | uint64(slot)<<shift), true
	}
	return 0, 0, 0, false
}

// drain empties a list and processes its entries. It returns the unused part of most.
func (w *Wheel) drain(list uint32, most int, fire func(uint32)) int {
	first := w.heads[list]
	if first == noHandle {
		return most
	}
	// Move the entries to another list first, so that fire can add to this one.
	w.heads[list] = noHandle
	w.setOccupied(list, false)
	w.heads[firing] = first
	w.entry(first).prev = headFlag | firing
	return w.look(most, fire)
}

// look processes the entries on the firing list. It fires those that are due, and moves the others
// to a lower level. It returns the unused part of most. If that is positive, the list is now empty.
func (w *Wheel) look(most int, fire func(uint32)) int {
	for ; most > 0; most-- {
		h := w.heads[firing]
		if h == noHandle {
			break
		}
		w.unlink(h)
		if w.entry(h).at > w.now {
			w.place(h)
			continue
		}
		w.count--
		fire(h)
	}
	return most
}

// place adds an entry to the list for its instant. The entry must not be in a list.
func (w *Wheel) place(handle uint32) {
	e := w.entry(handle)
	list := uint32(overdue)
	if e.at > w.now {
		level := (bits.Len64(uint64(e.at^w.elapsed)) - 1) / levelBits
		slot := int(uint64(e.at)>>(level*levelBits)) & (slots - 1)
		list = uint32(level*slots + slot)
	}
	e.prev, e.next = headFlag|list, w.heads[list]
	if e.next != noHandle {
		w.entry(e.next).prev = handle
	}
	w.heads[list] = handle
	w.setOccupied(list, true)
}

// unlink removes an entry from its list.
func (w *Wheel) unlink(handle uint32) {
	e := w.entry(handle)
	if e.next != noHandle {
		w.entry(e.next).prev = e.prev
	}
	if e.prev&headFlag == 0 {
		w.entry(e.prev).next = e.next
	} else {
		list := e.prev &^ headFlag
		w.heads[list] = e.next
		if e.next == noHandle {
			w.setOccupied(list, false)
		}
	}
	e.prev = absent
}

func (w *Wheel) setOccupied(list uint32, occupied bool) {
	if list >= overdue {
		return
	}
	bit := uint64(1) << (list % slots)
	if occupied {
		w.occupied[list/slots] |= bit
	} else {
		w.occupied[list/slots] &^= bit
	}
}

func (w *Wheel) entry(handle uint32) *entry {
	return &w.pages[handle>>pageBits][handle&(pageSize-1)]
}

// grow makes room for a handle. Pages never move, so growing a wheel to millions of handles does
// not copy it.
func (w *Wheel) grow(handle uint32) {
	for int(handle>>pageBits) >= len(w.pages) {
		p := new([pageSize]entry)
		for i := range p {
			p[i].prev = absent
		}
		w.pages = append(w.pages, p)
	}
}
