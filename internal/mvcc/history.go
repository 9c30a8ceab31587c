package mvcc

import (
	"iter"
	"slices"
	"sort"

	"github.com/tidwall/btree"
)

// chunkSize is the number of records in a new chunk of the history.
const chunkSize = 256

// history is the list of all records in revision order. It consists of chunks, which are found
// through a tree, and a tail. A snapshot never changes: the owner only appends after the end of the
// snapshot's tail, and replaces the snapshot's chunks instead of modifying them.
type history struct {
	dir  *directory
	tail []*record // records after dir, fewer than chunkSize

	// generation counts the snapshots. A chunk of the current generation is not in any snapshot,
	// and can be modified in place.
	generation uint64

	// frozen is a copy of dir. It is nil if dir has changed since.
	frozen *directory
}

// chunk is a part of the history. Its records are at or after first, and before the next chunk's
// first. The record at first itself may have been dropped.
type chunk struct {
	first      Revision
	generation uint64
	recs       []*record
}

// given is the generation of a chunk that must be copied before every modification.
const given = ^uint64(0)

// chunkRef has a copy of the chunk's first, so that a search need not read the chunk.
type chunkRef struct {
	first Revision
	*chunk
}

type directory = btree.BTreeG[chunkRef]

func newHistory() history {
	less := func(a, b chunkRef) bool { return a.first.less(b.first) }
	return history{
		dir:  btree.NewBTreeGOptions(less, btree.Options{Degree: treeDegree, NoLocks: true}),
		tail: make([]*record, 0, chunkSize),
	}
}

// snapshot returns the current contents as an immutable value.
func (h *history) snapshot() history {
	if h.frozen == nil {
		h.frozen = h.dir.Copy()
	}
	h.generation++
	return history{dir: h.frozen, tail: h.tail}
}

// change returns the directory for modification.
func (h *history) change() *directory {
	h.frozen = nil
	return h.dir
}

// set stores a chunk of the current generation with the given records.
func (h *history) set(first Revision, recs []*record) *chunk {
	c := &chunk{first: first, generation: h.generation, recs: recs}
	h.change().Set(chunkRef{first, c})
	return c
}

// append adds a record, which must come after all other records.
func (h *history) append(r *record) {
	h.tail = append(h.tail, r)
	if len(h.tail) == chunkSize {
		h.seal()
	}
}

// seal moves the tail, which must not be empty, into the directory. A snapshot may share the array
// of the tail. So if a full tail becomes a chunk of its own, that chunk is never modified in place.
func (h *history) seal() {
	first := h.tail[0].rev()
	last, ok := h.dir.Max()
	switch {
	case ok && len(last.recs)+len(h.tail) <= chunkSize*3/4:
		h.set(last.first, slices.Concat(last.recs, h.tail))
	case len(h.tail) < chunkSize:
		h.set(first, slices.Clone(h.tail))
	default:
		h.set(first, h.tail).generation = given
	}
	h.tail = make([]*record, 0, chunkSize)
}

// chunkOf returns the chunk that contains a revision outside the tail, if any does. It returns nil
// if the revision is before all chunks.
func (h *history) chunkOf(rev Revision) (c *chunk) {
	h.dir.Descend(chunkRef{first: rev}, func(ref chunkRef) bool {
		c = ref.chunk
		return false
	})
	return c
}

func (h *history) inTail(rev Revision) bool {
	return len(h.tail) > 0 && !rev.less(h.tail[0].rev())
}

// place returns the index of the first record in recs at or after rev.
func place(recs []*record, rev Revision) int {
	// Usually each revision has one change and no record was dropped, so the index can be computed
	// from the revision number.
	if len(recs) > 0 {
		guess := rev.Main - recs[0].ModRevision
		if guess >= 0 && guess < int64(len(recs)) && recs[guess].rev() == rev {
			return int(guess)
		}
	}
	return sort.Search(len(recs), func(i int) bool { return !recs[i].rev().less(rev) })
}

// find returns the record of a revision, or nil if there is none.
func (h *history) find(rev Revision) *record {
	recs := h.tail
	if !h.inTail(rev) {
		c := h.chunkOf(rev)
		if c == nil {
			return nil
		}
		recs = c.recs
	}
	if k := place(recs, rev); k < len(recs) && recs[k].rev() == rev {
		return recs[k]
	}
	return nil
}

// chunks yields the records at or after rev, in order, in slices that the caller must not modify.
func (h *history) chunks(rev Revision) iter.Seq[[]*record] {
	return func(yield func([]*record) bool) {
		if !h.inTail(rev) {
			start := Revision{}
			if c := h.chunkOf(rev); c != nil {
				start = c.first
			}
			done := false
			h.dir.Ascend(chunkRef{first: start}, func(ref chunkRef) bool {
				recs := ref.recs
				if ref.first == start {
					recs = recs[place(recs, rev):]
				}
				done = !yield(recs)
				return !done
			})
			if done {
				return
			}
		}
		yield(h.tail[place(h.tail, rev):])
	}
}

// from yields the records at or after rev, in order.
func (h *history) from(rev Revision) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for recs := range h.chunks(rev) {
			for _, r := range recs {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// countFrom returns the number of records at or after rev, or most if there are more than that.
func (h *history) countFrom(rev Revision, most int) int {
	n := 0
	for recs := range h.chunks(rev) {
		n += len(recs)
		if n >= most {
			return most
		}
	}
	return n
}

// drop removes the record of a revision and reports whether there was one. The record must not be
// in the tail.
func (h *history) drop(rev Revision) bool {
	if h.inTail(rev) {
		panic("mvcc: drop from the tail of the history")
	}
	c := h.chunkOf(rev)
	if c == nil {
		return false
	}
	k := place(c.recs, rev)
	if k == len(c.recs) || c.recs[k].rev() != rev {
		return false
	}
	if c.generation != h.generation {
		c = h.set(c.first, slices.Concat(c.recs[:k], c.recs[k+1:]))
	} else {
		c.recs = slices.Delete(c.recs, k, k+1)
	}
	if n := len(c.recs); n == 0 || n == chunkSize/4 {
		h.merge(c.first)
	}
	return true
}

// merge joins a chunk that has become small with the next one, if that is small as well. If the
// chunk is empty, merge drops it.
func (h *history) merge(first Revision) {
	var refs [2]chunkRef
	n := 0
	h.dir.Ascend(chunkRef{first: first}, func(ref chunkRef) bool {
		refs[n] = ref
		n++
		return n < len(refs)
	})
	a, b := refs[0], refs[1]
	if len(a.recs) == 0 {
		h.change().Delete(a)
		return
	}
	if n == 2 && len(a.recs)+len(b.recs) <= chunkSize/2 {
		h.change().Delete(b)
		h.set(a.first, slices.Concat(a.recs, b.recs))
	}
}
