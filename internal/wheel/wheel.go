// Package wheel is a hierarchical timing wheel over dense integer handles.
//
// A [Wheel] stores an instant in milliseconds for each handle, and fires the handle when its clock
// reaches that instant. Adding and removing are O(1). Advancing is amortized O(1) per entry, no
// matter how far the clock jumps and how far away the instants are: an entry moves at most once per
// level on its way down.
//
// The caller numbers its items densely from zero (slots of a slab): the wheel holds an array with
// 16 bytes for every handle up to the largest one ever added, without an allocation or a pointer
// per entry. It is not safe for concurrent use, reads no clock, and does not specify the order in
// which entries fire during the same Advance.
package wheel

import (
	"fmt"
	"math/bits"
)

const (
	levelBits = 6 // 64 slots per level: their occupancy fits into one word
	slots     = 1 << levelBits
	// levels of 64 slots each cover every non-negative int64.
	levels = (63 + levelBits - 1) / levelBits

	// Two lists in addition to the slots: entries added at an instant that has already passed, and
	// entries that Advance has taken out, to fire them or to move them to a lower level.
	overdue = levels * slots
	firing  = overdue + 1
	lists   = firing + 1

	pageBits = 10
	pageSize = 1 << pageBits
)

const (
	nobody uint32 = 1<<32 - 1 // end of a list
	absent        = nobody    // as prev: the handle is not in the wheel
	// headFlag in prev marks the first entry of a list; the other bits then
	// number the list. So an entry finds its list without knowing its level.
	headFlag uint32 = 1 << 31

	// maxHandle is the largest handle.
	maxHandle = headFlag - 1
)

// entry is a handle's position. Invariant: prev == absent if and only if the handle is not in the
// wheel; otherwise the neighbors point back to it.
type entry struct {
	at         int64
	prev, next uint32
}

// Wheel holds the entries. The zero value is not usable: call New.
type Wheel struct {
	pages []*[pageSize]entry
	// elapsed is how far the wheel has turned. Invariant: an entry in slot s of level v agrees with
	// elapsed in every digit (of levelBits) above v, and its digit v is s, which is greater than
	// that of elapsed. So lower levels come first, and within a level lower slots.
	elapsed int64
	// now is the time passed to the last Advance. Invariant: it is elapsed or, while there may be
	// something left to fire, later.
	now   int64
	heads [lists]uint32
	// occupied has a bit for every slot of a level with entries in it.
	occupied [levels]uint64
	count    int
}

// New returns an empty wheel whose clock shows now, which is not negative.
func New(now int64) *Wheel {
	if now < 0 {
		panic(fmt.Sprintf("wheel: negative instant %d", now))
	}
	w := &Wheel{elapsed: now, now: now}
	for i := range w.heads {
		w.heads[i] = nobody
	}
	return w
}

// Len returns the number of handles in the wheel.
func (w *Wheel) Len() int { return w.count }

// At returns the instant that the handle was added for, and ok=false if it is
// not in the wheel.
func (w *Wheel) At(handle uint32) (at int64, ok bool) {
	if int(handle>>pageBits) >= len(w.pages) {
		return 0, false
	}
	e := w.entry(handle)
	return e.at, e.prev != absent
}

// Add makes the handle fire at the instant at, or with the next Advance if that has passed. A
// handle that is in the wheel already is moved.
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

// Remove takes the handle out and reports whether it was in the wheel.
func (w *Wheel) Remove(handle uint32) bool {
	if _, ok := w.At(handle); !ok {
		return false
	}
	w.unlink(handle)
	w.count--
	return true
}

// Advance moves the clock to now and calls fire for every handle whose instant has come, after
// taking it out. fire may add and remove handles, including this one; a handle that it adds at an
// instant that has passed fires with the next Advance. It panics if now is before the clock.
//
// It processes no more than most entries, so that the caller's steps stay short no matter how many
// are due at one instant. The rest fires with the next calls, and until then Next returns now.
func (w *Wheel) Advance(now int64, most int, fire func(handle uint32)) {
	if now < w.now {
		panic(fmt.Sprintf("wheel: clock goes back from %d to %d", w.now, now))
	}
	w.now = now
	if w.heads[firing] != nobody { // left by the previous call
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

// Next returns an instant before which nothing fires, and ok=false if the
// wheel is empty. It is exact when the nearest entry is on the lowest level;
// otherwise advancing to it brings the nearest entry at least one level down.
func (w *Wheel) Next() (at int64, ok bool) {
	if w.heads[overdue] != nobody || w.heads[firing] != nobody {
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
		// The digits above the level are elapsed's, those below are zero. A shift
		// by 64 or more (above the top level) gives 0, as it should.
		above := uint64(w.elapsed) >> (shift + levelBits) << (shift + levelBits)
		return level, slot, int64(above | uint64(slot)<<shift), true
	}
	return 0, 0, 0, false
}

// drain takes a list out and processes its entries. It returns how many more it may process.
func (w *Wheel) drain(list uint32, most int, fire func(uint32)) int {
	first := w.heads[list]
	if first == nobody {
		return most
	}
	// Move the list aside first, so that fire may add to the same one.
	w.heads[list] = nobody
	w.setOccupied(list, false)
	w.heads[firing] = first
	w.entry(first).prev = headFlag | firing
	return w.look(most, fire)
}

// look processes the entries taken out: those that are due fire, the rest move to a lower level. It
// returns how many more entries it may process; if that is above 0, it processed all.
func (w *Wheel) look(most int, fire func(uint32)) int {
	for ; most > 0; most-- {
		h := w.heads[firing]
		if h == nobody {
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

// place links an entry, which is in no list, where its instant belongs.
func (w *Wheel) place(handle uint32) {
	e := w.entry(handle)
	list := uint32(overdue)
	if e.at > w.now {
		level := (bits.Len64(uint64(e.at^w.elapsed)) - 1) / levelBits
		slot := int(uint64(e.at)>>(level*levelBits)) & (slots - 1)
		list = uint32(level*slots + slot)
	}
	e.prev, e.next = headFlag|list, w.heads[list]
	if e.next != nobody {
		w.entry(e.next).prev = handle
	}
	w.heads[list] = handle
	w.setOccupied(list, true)
}

// unlink takes an entry out of its list.
func (w *Wheel) unlink(handle uint32) {
	e := w.entry(handle)
	if e.next != nobody {
		w.entry(e.next).prev = e.prev
	}
	if e.prev&headFlag == 0 {
		w.entry(e.prev).next = e.next
	} else {
		list := e.prev &^ headFlag
		w.heads[list] = e.next
		if e.next == nobody {
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

// grow makes room for a handle. Pages never move, so that growing a wheel of
// millions does not copy it.
func (w *Wheel) grow(handle uint32) {
	for int(handle>>pageBits) >= len(w.pages) {
		p := new([pageSize]entry)
		for i := range p {
			p[i].prev = absent
		}
		w.pages = append(w.pages, p)
	}
}
