package mvcc

import (
	"bytes"
	"sort"
)

// These are approximate memory sizes, excluding the bytes of keys and values. recordCost covers a
// record and its slots in the history, in its entry and in ends. keyCost covers a key from its
// creation to its deletion: the entry, and its slots in the tree and the map.
const (
	recordCost = 128
	keyCost    = 128
)

func (r *record) cost() int64 { return recordCost + int64(len(r.Value)) }

func lifeCost(key string) int64 { return keyCost + int64(len(key)) }

// PutSize returns the maximum amount by which a put can increase the size.
func PutSize(key string, value []byte) int64 {
	return recordCost + int64(len(value)) + lifeCost(key)
}

// KeepSize is the most by which a put can increase the size if it keeps the key's value and changes
// only its lease.
const KeepSize = recordCost + ShortValue

// inherit lets r share the bytes of its value with last, the previous version, so that they are
// counted once. It does so, and returns true, only if the values are equal, the leases differ, and
// last's value has its own allocation. So a key that outlives its lease takes no more memory than
// before. Clients that put the same value again expect the state to grow, as it does in etcd. last
// may be nil.
func (r *record) inherit(last *record) bool {
	if len(r.Value) <= ShortValue || last.kv() == nil || r.Lease == last.Lease ||
		!bytes.Equal(r.Value, last.Value) {
		return false
	}
	r.Value = last.Value
	return true
}

// sized counts a record that becomes the newest version of its key. last is the previous version,
// or nil.
//
// The size covers the records that View.Records yields, regardless of Scrub's progress. Records
// that a compaction has made superfluous do not count. So each record is registered under the first
// compacted revision that makes it superfluous. That is the revision of the key's next record, so
// it is known once the next record is stored. A tombstone also ends the fixed cost of its key,
// which is counted each time the key is created. If the next version inherits a value, the value
// ends with that version. For one exception, see Size.
func (s *Store) sized(r, last *record) {
	inherited := int64(0)
	if r.inherit(last) {
		inherited = int64(len(r.Value))
	}
	replaces := last.kv() != nil
	s.size += r.cost() - inherited
	if replaces {
		s.ends.add(max(r.ModRevision, last.ModRevision+1), last.cost()-inherited)
	} else {
		s.size += lifeCost(r.Key)
	}
	if r.tombstone() {
		s.ends.add(r.ModRevision+1, r.cost()+lifeCost(r.Key))
	}
	if r.writer != nil || replaces && last.writer != nil {
		r.count(last, inherited)
	}
}

// count counts a record for its writers, just as sized does for the store.
func (r *record) count(last *record, inherited int64) {
	w := r.writer
	w.grow(r.cost() + lifeCost(r.Key))
	if last.kv() != nil {
		before := last.writer
		before.grow(-inherited - lifeCost(r.Key))
		before.end(max(r.ModRevision, last.ModRevision+1), last.cost()-inherited)
		if last.Lease != 0 {
			before.holds(-1)
		}
	}
	switch {
	case r.tombstone():
		w.end(r.ModRevision+1, r.cost()+lifeCost(r.Key))
	case r.Lease != 0:
		w.holds(1)
	}
}

// ends records how many bytes each compaction subtracts from the size. Entries are added in
// revision order, except that the last two may be added in either order.
//
// Invariant: no chunk is empty; revisions and sums increase.
type ends struct {
	chunks [][]end
	before int64 // the sum of everything that has already ended
}

// end is a revision, and the total number of bytes, since the store was created, that end at or
// before that revision.
type end struct{ revision, sum int64 }

const endsChunk = 1024

// add records n more bytes that end at a revision. At most one recorded revision may be later.
func (e *ends) add(revision, n int64) {
	sum := e.before
	if last := len(e.chunks) - 1; last >= 0 {
		c := e.chunks[last]
		switch at := &c[len(c)-1]; {
		case at.revision == revision:
			at.sum += n
			return
		case at.revision > revision:
			e.addBefore(revision, n)
			return
		default:
			sum = at.sum
		}
	}
	e.push(end{revision, sum + n})
}

// addBefore is like add, for a revision before the last recorded one.
func (e *ends) addBefore(revision, n int64) {
	last := e.pop()
	e.add(revision, n)
	e.push(end{last.revision, last.sum + n})
}

func (e *ends) push(v end) {
	switch n := len(e.chunks); {
	case n == 0: // most writers have few entries, and there are many writers
		e.chunks = append(e.chunks, nil)
	case len(e.chunks[n-1]) >= endsChunk:
		e.chunks = append(e.chunks, make([]end, 0, endsChunk))
	}
	c := &e.chunks[len(e.chunks)-1]
	*c = append(*c, v)
}

func (e *ends) pop() end {
	c := &e.chunks[len(e.chunks)-1]
	v := (*c)[len(*c)-1]
	if *c = (*c)[:len(*c)-1]; len(*c) == 0 {
		e.chunks = e.chunks[:len(e.chunks)-1]
	}
	return v
}

// left returns the number of bytes that end at later revisions.
func (e *ends) left() int64 {
	if n := len(e.chunks); n > 0 {
		c := e.chunks[n-1]
		return c[len(c)-1].sum - e.before
	}
	return 0
}

// take removes the bytes that end at or before a revision, and returns how many there were.
func (e *ends) take(revision int64) (bytes int64) {
	n := sort.Search(len(e.chunks), func(i int) bool { return e.chunks[i][0].revision > revision })
	if n == 0 {
		return 0
	}
	c := e.chunks[n-1]
	k := sort.Search(len(c), func(i int) bool { return c[i].revision > revision })
	bytes = c[k-1].sum - e.before
	e.before = c[k-1].sum
	if k == len(c) {
		e.chunks = e.chunks[n:]
	} else {
		e.chunks = e.chunks[n-1:]
		e.chunks[0] = c[k:]
	}
	return bytes
}
