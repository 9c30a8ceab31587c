package mvcc

import (
	"sort"
	"sync/atomic"
)

// record is one version of a key, or its deletion (a tombstone, Version 0). It is immutable
// once its transaction has ended.
type record struct {
	KeyValue

	// prev is the revision of the version that this one replaced, or zero if the key did not exist.
	// It is not a pointer, so that old history can be freed while newer records are in use.
	prevMain int64
	prevSub  int32

	sub int32
}

// ShortValue is the size in bytes of the largest value that the store copies.
const ShortValue = 168

// newRecord returns a record with a value. A short value is copied into the same allocation, after
// the record, so that the garbage collector has one fewer object to track. The sizes match the
// allocator's size classes.
func newRecord(value []byte) *record {
	switch n := len(value); {
	case n == 0 || n > ShortValue:
		return &record{KeyValue: KeyValue{Value: value}}
	case n <= 16:
		r := &inlined[[16]byte]{}
		return r.hold(value, r.room[:])
	case n <= 32:
		r := &inlined[[32]byte]{}
		return r.hold(value, r.room[:])
	case n <= 64:
		r := &inlined[[64]byte]{}
		return r.hold(value, r.room[:])
	case n <= 96:
		r := &inlined[[96]byte]{}
		return r.hold(value, r.room[:])
	case n <= 128:
		r := &inlined[[128]byte]{}
		return r.hold(value, r.room[:])
	case n <= 160:
		r := &inlined[[160]byte]{}
		return r.hold(value, r.room[:])
	default:
		r := &inlined[[ShortValue]byte]{}
		return r.hold(value, r.room[:])
	}
}

// inlined is a record followed by room for a short value.
type inlined[Room any] struct {
	record
	room Room
}

// hold copies value into room and makes the copy the value of r.
func (r *record) hold(value, room []byte) *record {
	r.Value = room[:len(value):len(value)]
	copy(r.Value, value)
	return r
}

func (r *record) rev() Revision   { return Revision{r.ModRevision, int64(r.sub)} }
func (r *record) tombstone() bool { return r.Version == 0 }

// prev returns the revision of the previous version, and whether there was one.
func (r *record) prev() (Revision, bool) {
	return Revision{r.prevMain, int64(r.prevSub)}, r.prevMain != 0
}

// kv returns the pair that a reader sees. It is nil if r is nil or a tombstone.
func (r *record) kv() *KeyValue {
	if r == nil || r.tombstone() {
		return nil
	}
	return &r.KeyValue
}

// entry contains the versions of one key. The owner of the store appends versions while views read
// the entry and select their version by revision.
//
// Invariant: the versions are exactly the records of this key in the history, unless Scrub has
// replaced the entry.
type entry struct {
	newest atomic.Pointer[record]

	// older contains all versions except the newest. It is nil if there are none. While push is
	// running, it may include the newest as well.
	older atomic.Pointer[versions]
}

// versions is a list that one goroutine appends to while others read it. The first n elements of
// recs are valid and never change.
type versions struct {
	n    atomic.Int64
	recs []*record
}

// push makes r the newest version. It first adds the previous newest version to older, so that a
// reader for which r is too new finds all other versions there.
func (e *entry) push(r *record) {
	if last := e.newest.Load(); last != nil {
		e.demote(last)
	}
	e.newest.Store(r)
}

func (e *entry) demote(last *record) {
	v := e.older.Load()
	if v == nil {
		two := &struct { // most keys have at most two
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

// at returns the newest version at or before a revision, or nil if there is none.
func (e *entry) at(rev int64) *record {
	r := e.newest.Load()
	if r.ModRevision <= rev {
		return r
	}
	old := e.olderVersions()
	i := sort.Search(len(old), func(i int) bool { return old[i].ModRevision > rev })
	if i == 0 {
		return nil
	}
	return old[i-1]
}

// olderVersions returns the older versions, oldest first. They may include the newest version.
func (e *entry) olderVersions() []*record {
	if v := e.older.Load(); v != nil {
		return v.recs[:v.n.Load()]
	}
	return nil
}

// chain contains the versions of a key at one point in time, oldest first.
type chain struct {
	old  []*record
	last *record // follows old; nil if old already includes it
}

func (e *entry) chain() chain {
	// load newest first, so that olderVersions includes every version before it
	c := chain{last: e.newest.Load()}
	c.old = e.olderVersions()
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

// since returns the index of the first version at or after a revision.
func (c *chain) since(rev int64) int {
	return sort.Search(c.len(), func(i int) bool { return c.at(i).ModRevision >= rev })
}
