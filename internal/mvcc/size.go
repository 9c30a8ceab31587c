package mvcc

import (
	"bytes"
	"sort"
)

// What a record, and a key from its creation to its deletion, take in memory besides the bytes
// of key and value: the record and its places in the history, in its entry and in ends; the
// entry and its places in tree and map.
const (
	recordCost = 128
	keyCost    = 128
)

func (r *record) cost() int64 { return recordCost + int64(len(r.Value)) }

func lifeCost(key string) int64 { return keyCost + int64(len(key)) }

// PutSize returns by how much a put lets the size grow, at most.
func PutSize(key string, value []byte) int64 {
	return recordCost + int64(len(value)) + lifeCost(key)
}

// KeepSize is by how much a put lets the size grow, at most, that keeps the value of its key and
// changes its lease.
const KeepSize = recordCost + ShortValue

// inherit makes r have the same bytes for its value as last, the version before, if they are equal,
// the lease is another, and last has not got them behind it, and reports whether it does: then they
// count once. So a key that stays when its lease ends takes no more than before. Clients that put
// the same again and again expect the state to grow, as it does in etcd. last may be nil.
func (r *record) inherit(last *record) bool {
	if len(r.Value) <= ShortValue || last.kv() == nil || r.Lease == last.Lease ||
		!bytes.Equal(r.Value, last.Value) {
		return false
	}
	r.Value = last.Value
	return true
}

// sized counts a record that is stored as the newest of its key, after last, nil if that is none.
//
// The size is that of what View.Records yields, wherever Scrub is: what is superfluous after a
// compaction is counted no more. So each record is noted here under the compacted revision from
// which on it is superfluous, which is known when the next of its key is stored: that one's, but
// not its own. A tombstone takes the key with it, which counts once for each time that it was
// created, and a value that the next version inherits goes with that one.
// See Size for an exception.
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

// count is sized for writers: of the record, and of the one that it replaces.
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

// ends says how many bytes end with which compaction. They are added in the order of the
// revisions, but for the last two.
//
// Invariant: no chunk is empty, and revisions and sums rise in them and from one to the next.
type ends struct {
	chunks [][]end
	before int64 // the sum of all that ended
}

// end is how many bytes end at its revision and at those before, since the store was made.
type end struct{ revision, sum int64 }

const endsChunk = 1024

// add notes n more bytes that end at a revision, which is not more than one before the last.
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

// addBefore is add for the revision before the last.
func (e *ends) addBefore(revision, n int64) {
	last := e.pop()
	e.add(revision, n)
	e.push(end{last.revision, last.sum + n})
}

func (e *ends) push(v end) {
	switch n := len(e.chunks); {
	case n == 0: // there are many writers, most of which have few
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

// left returns how many bytes end at any revision.
func (e *ends) left() int64 {
	if n := len(e.chunks); n > 0 {
		c := e.chunks[n-1]
		return c[len(c)-1].sum - e.before
	}
	return 0
}

// take forgets what ends at a revision or before it, and returns how many bytes that are.
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
