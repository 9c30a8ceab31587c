package mvcc

import (
	"sort"
	"sync/atomic"
)

// record is one version of a key, or its deletion (a tombstone, Version 0). It is immutable
// once its transaction has ended.
type record struct {
	KeyValue

	// prev is the version that this one replaced, zero if the key did not exist. It names
	// the record by revision, not by pointer, so that history can be dropped piece by
	// piece without the new holding on to the old.
	prevMain int64
	prevSub  int32

	sub int32
}

// ShortValue is how long a value is, at most, of which the store makes a copy.
const ShortValue = 168

// newRecord returns a record of a value. A copy of a short one lies behind the record: one
// thing to allocate, to mark and to sweep, not two. The sizes are those that the allocator
// hands out.
func newRecord(value []byte) *record {
	switch n := len(value); {
	case n == 0 || n > ShortValue:
		return &record{KeyValue: KeyValue{Value: value}}
	case n <= 16:
		r := &roomy[[16]byte]{}
		return r.hold(value, r.room[:])
	case n <= 32:
		r := &roomy[[32]byte]{}
		return r.hold(value, r.room[:])
	case n <= 64:
		r := &roomy[[64]byte]{}
		return r.hold(value, r.room[:])
	case n <= 96:
		r := &roomy[[96]byte]{}
		return r.hold(value, r.room[:])
	case n <= 128:
		r := &roomy[[128]byte]{}
		return r.hold(value, r.room[:])
	case n <= 160:
		r := &roomy[[160]byte]{}
		return r.hold(value, r.room[:])
	default:
		r := &roomy[[ShortValue]byte]{}
		return r.hold(value, r.room[:])
	}
}

// roomy is a record with room for a value behind it.
type roomy[Room any] struct {
	record
	room Room
}

// hold gives r a copy of the value in its room.
func (r *record) hold(value, room []byte) *record {
	r.Value = room[:len(value):len(value)]
	copy(r.Value, value)
	return r
}

func (r *record) rev() Revision   { return Revision{r.ModRevision, int64(r.sub)} }
func (r *record) tombstone() bool { return r.Version == 0 }

// prev returns the revision of the version before, and whether there was one.
func (r *record) prev() (Revision, bool) {
	return Revision{r.prevMain, int64(r.prevSub)}, r.prevMain != 0
}

// kv returns what a reader sees: nothing, if r is nil or a tombstone.
func (r *record) kv() *KeyValue {
	if r == nil || r.tombstone() {
		return nil
	}
	return &r.KeyValue
}

// entry holds the versions of one key. The owner of the store appends to it while views read
// it: they find their own place by revision.
//
// Invariant: its versions are exactly the records that the history has of this key, unless
// Scrub has put another entry in its place.
type entry struct {
	newest atomic.Pointer[record]

	// older has every version but the newest, nil if there is none. It may already have
	// the newest, too, when a reader comes between the two steps of push.
	older atomic.Pointer[versions]
}

// versions is a list that one goroutine appends to and others read. The first n of recs are
// valid and never change.
type versions struct {
	n    atomic.Int64
	recs []*record
}

// push makes r the newest version. The one before is in older by the time that r can be
// seen, so a reader that finds r too new finds the others.
func (e *entry) push(r *record) {
	if last := e.newest.Load(); last != nil {
		e.demote(last)
	}
	e.newest.Store(r)
}

func (e *entry) demote(last *record) {
	v := e.older.Load()
	if v == nil {
		two := &struct { // most keys never have more
			versions
			room [2]*record
		}{}
		v = &two.versions
		v.recs = two.room[:]
		v.recs[0] = last
		v.n.Store(1)
		e.older.Store(v)
		return
	}
	n := v.n.Load()
	if int(n) == len(v.recs) {
		grown := &versions{recs: make([]*record, 2*n+2)}
		copy(grown.recs, v.recs)
		grown.recs[n] = last
		grown.n.Store(n + 1)
		e.older.Store(grown)
		return
	}
	v.recs[n] = last
	v.n.Store(n + 1)
}

// at returns the newest version at or before the revision, nil if there is none.
func (e *entry) at(rev int64) *record {
	r := e.newest.Load()
	if r.ModRevision <= rev {
		return r
	}
	old := e.olds()
	i := sort.Search(len(old), func(i int) bool { return old[i].ModRevision > rev })
	if i == 0 {
		return nil
	}
	return old[i-1]
}

// olds returns the older versions, oldest first. It may include the newest.
func (e *entry) olds() []*record {
	if v := e.older.Load(); v != nil {
		return v.recs[:v.n.Load()]
	}
	return nil
}

// chain is the versions of a key at one moment, oldest first.
type chain struct {
	old  []*record
	last *record // behind old, nil if old has it already
}

func (e *entry) chain() chain {
	c := chain{last: e.newest.Load()} // first: olds then has everything before it
	c.old = e.olds()
	if n := len(c.old); n > 0 && !c.old[n-1].rev().less(c.last.rev()) {
		c.last = nil
	}
	return c
}

func (c *chain) len() int {
	if c.last == nil {
		return len(c.old)
	}
	return len(c.old) + 1
}

func (c *chain) at(i int) *record {
	if i < len(c.old) {
		return c.old[i]
	}
	return c.last
}

// since returns the index of the first version at or after the revision.
func (c *chain) since(rev int64) int {
	return sort.Search(c.len(), func(i int) bool { return c.at(i).ModRevision >= rev })
}
