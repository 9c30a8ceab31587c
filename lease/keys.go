package lease

import (
	"fmt"
	"iter"
	"slices"
)

// attachment is a key on a lease, linked to the other keys of the lease.
type attachment struct {
	key        string
	slot       uint32
	prev, next uint32 // 0: none
}

// keyList lists the keys of a lease.
type keyList struct {
	first uint32 // 0: none
	count uint32
}

// attachments maps each attached key to its lease. It uses eight bytes for a lease without keys,
// and 32 bytes plus a map entry for each key.
//
// Invariants: owner[k] == e if and only if entries[e] is in use with key k; such an entry is in the
// list of entries[e].slot and in no other; a list's count is its length.
type attachments struct {
	owner   map[string]uint32
	entries paged[attachment] // numbered from 1
	lists   paged[keyList]    // indexed by the slot of the lease
	free    uint32            // first unused entry, linked by next
	top     uint32            // number of entries ever used
}

func newAttachments() *attachments {
	return &attachments{owner: make(map[string]uint32)}
}

// attach links a key that is not attached yet.
func (a *attachments) attach(slot uint32, key string) {
	n := a.free
	if n != 0 {
		a.free = a.entries.at(n).next
	} else {
		a.top++
		n = a.top
		a.entries.grow(n)
	}
	list := a.lists.grow(slot)
	*a.entries.at(n) = attachment{key: key, slot: slot, next: list.first}
	if list.first != 0 {
		a.entries.at(list.first).prev = n
	}
	list.first = n
	list.count++
	a.owner[key] = n
}

// detach unlinks a key if it is attached, and returns the slot of its lease.
func (a *attachments) detach(key string) (slot uint32, ok bool) {
	n, ok := a.owner[key]
	if !ok {
		return 0, false
	}
	delete(a.owner, key)
	e := a.entries.at(n)
	slot = e.slot
	list := a.lists.at(slot)
	list.count--
	if e.next != 0 {
		a.entries.at(e.next).prev = e.prev
	}
	if e.prev != 0 {
		a.entries.at(e.prev).next = e.next
	} else {
		list.first = e.next
	}
	a.release(n)
	return slot, true
}

// release frees entry n.
func (a *attachments) release(n uint32) {
	*a.entries.at(n) = attachment{next: a.free}
	a.free = n
}

// keys returns the sorted keys of the lease in a slot.
func (a *attachments) keys(slot uint32) []string {
	list := a.lists.get(slot)
	out := make([]string, 0, list.count)
	for n := list.first; n != 0; n = a.entries.at(n).next {
		out = append(out, a.entries.at(n).key)
	}
	slices.Sort(out)
	return out
}

// detachAll unlinks the keys of the lease in a slot and returns them, sorted.
func (a *attachments) detachAll(slot uint32) []string {
	out := a.keys(slot)
	for n := a.lists.get(slot).first; n != 0; {
		next := a.entries.at(n).next
		delete(a.owner, a.entries.at(n).key)
		a.release(n)
		n = next
	}
	a.lists.clear(slot)
	return out
}

// Attach attaches a key to a lease. A key attached to another lease is moved. Attach returns
// ErrNotFound if the lease does not exist or is delayed, ErrBound, or a *KeyLimitError.
//
// An expiring lease still accepts keys, because the log orders the two commands. If Attach comes
// first, the key is deleted with the lease. Otherwise, Attach does not find the lease (T21).
func (l *Lessor) Attach(id ID, key string) error {
	if err := l.CheckAttach(id, key); err != nil {
		return err
	}
	slot, _ := l.table.find(id)
	l.move(slot, key)
	return nil
}

// CheckAttach returns the error that Attach would return, without attaching the key.
func (l *Lessor) CheckAttach(id ID, key string) error {
	slot, ok := l.alive(id)
	if !ok {
		return ErrNotFound
	}
	count, limit := int(l.keys.lists.get(slot).count), l.cfg.MaxKeys
	bound, full := l.table.bound(slot), limit > 0 && count >= limit
	switch {
	case count == 0 || !bound && !full || l.keys.attachedTo(slot, key):
		return nil
	case bound:
		return ErrBound
	default:
		return &KeyLimitError{ID: id, Limit: limit}
	}
}

// Reattach attaches about n keys after a Recover. Unlike Attach, it accepts delayed leases and
// enforces no limit, since the keys may have been attached under a different limit. It stops at the
// first key whose lease is not found, and returns ErrNotFound.
func (l *Lessor) Reattach(n int, keys iter.Seq2[ID, string]) error {
	if len(l.keys.owner) == 0 {
		l.keys.owner = make(map[string]uint32, n)
	}
	var some [64]lookup
	have := 0
	for id, key := range keys {
		some[have].id, some[have].key = id, key
		if have++; have == len(some) {
			have = 0
			if err := l.reattach(some[:]); err != nil {
				return err
			}
		}
	}
	return l.reattach(some[:have])
}

func (l *Lessor) reattach(some []lookup) error {
	l.table.findAll(some)
	for i := range some {
		s := &some[i]
		if s.entry == 0 {
			return fmt.Errorf("%w: key %q is attached to lease %016x", ErrNotFound, s.key, s.id)
		}
		l.move(s.entry-1, s.key)
	}
	return nil
}

// move attaches a key to the lease in a slot, and detaches it from any other lease.
func (l *Lessor) move(slot uint32, key string) {
	if n, ok := l.keys.owner[key]; ok {
		if l.keys.entries.at(n).slot == slot {
			return
		}
		l.Detach(key)
	}
	l.keys.attach(slot, key)
	if l.table.keeps(slot) {
		l.kept++
	}
}

func (a *attachments) attachedTo(slot uint32, key string) bool {
	n, ok := a.owner[key]
	return ok && a.entries.at(n).slot == slot
}

// Detach detaches a key from its lease. It does nothing if the key is not attached.
func (l *Lessor) Detach(key string) {
	if slot, ok := l.keys.detach(key); ok && l.table.keeps(slot) {
		l.kept--
	}
}

// Loose reports whether a bound lease no longer has its key. Such a lease should be revoked.
func (l *Lessor) Loose(id ID) bool {
	slot, ok := l.table.find(id)
	return ok && l.table.bound(slot) && l.keys.lists.get(slot).count == 0
}

// LeaseOf returns the lease that a key is attached to, or 0 if there is none.
func (l *Lessor) LeaseOf(key string) ID {
	n, ok := l.keys.owner[key]
	if !ok {
		return 0
	}
	return l.table.record(l.keys.entries.at(n).slot).id
}

// Keys returns the sorted keys attached to a lease.
func (l *Lessor) Keys(id ID) []string {
	slot, ok := l.table.find(id)
	if !ok {
		return nil
	}
	return l.keys.keys(slot)
}

// EachKey yields the keys attached to a lease, most recent first, without copying them. The Lessor
// must not change during the iteration.
func (l *Lessor) EachKey(id ID) iter.Seq[string] { return l.EachKeyAfter(id, "") }

// EachKeyAfter is like EachKey, but starts after the given key, which must be attached to the
// lease. If key is "", it yields all keys.
func (l *Lessor) EachKeyAfter(id ID, key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		slot, ok := l.table.find(id)
		if !ok {
			return
		}
		n := l.keys.lists.get(slot).first
		if key != "" {
			n = l.keys.entries.at(l.keys.owner[key]).next
		}
		for ; n != 0; n = l.keys.entries.at(n).next {
			if !yield(l.keys.entries.at(n).key) {
				return
			}
		}
	}
}

// KeyCount returns how many keys are attached to a lease, or 0 if there is no such lease. It takes
// constant time, so a caller can use it to bound the number of keys in a batch of expiries.
func (l *Lessor) KeyCount(id ID) int {
	slot, ok := l.table.find(id)
	if !ok {
		return 0
	}
	return int(l.keys.lists.get(slot).count)
}

// Attached returns the number of attached keys.
func (l *Lessor) Attached() int { return len(l.keys.owner) }
