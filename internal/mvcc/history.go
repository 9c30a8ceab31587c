package mvcc

import (
	"iter"
	"slices"
	"sort"
)

// chunkSize is how many records a chunk of the history has when it is new.
const chunkSize = 256

// history is the list of all records, in the order of their revisions.
//
// A copy of the struct is a snapshot: the owner only appends behind the ends that the copy
// knows, or replaces what it has shared.
type history struct {
	dir  []chunkRef
	tail []*record // after dir, fewer than chunkSize

	// generation counts the calls of share; what carries the present one has not been
	// shared and may be changed in place.
	generation    uint64
	dirGeneration uint64
}

// chunkRef is a chunk in the directory. No record of an earlier chunk is at or after first,
// no record of this one before it; the record at first itself may have been dropped.
type chunkRef struct {
	first Revision
	c     *chunk
}

type chunk struct {
	generation uint64
	recs       []*record
}

func newHistory() history {
	return history{tail: make([]*record, 0, chunkSize)}
}

// share says that the present contents have been given away.
func (h *history) share() { h.generation++ }

// append adds a record that is after all others.
func (h *history) append(r *record) {
	h.tail = append(h.tail, r)
	if len(h.tail) == chunkSize {
		h.seal()
	}
}

// seal moves the tail into the directory.
func (h *history) seal() {
	if len(h.tail) == 0 {
		return
	}
	// A view may share the array of the tail, so the chunk is not ours to change.
	c := &chunk{recs: h.tail}
	if len(h.tail) < chunkSize {
		c = &chunk{recs: slices.Clone(h.tail), generation: h.generation}
	}
	h.dir = append(h.dir, chunkRef{first: h.tail[0].rev(), c: c})
	h.tail = make([]*record, 0, chunkSize)
}

// chunkOf returns the index in the directory of the only chunk that can have the revision,
// len(dir) for the tail, and -1 if all records are later.
func (h *history) chunkOf(rev Revision) int {
	if len(h.tail) > 0 && !rev.Less(h.tail[0].rev()) {
		return len(h.dir)
	}
	return sort.Search(len(h.dir), func(i int) bool { return rev.Less(h.dir[i].first) }) - 1
}

// chunk returns the records of the chunk at index i, as chunkOf counts.
func (h *history) chunk(i int) []*record {
	if i == len(h.dir) {
		return h.tail
	}
	return h.dir[i].c.recs
}

// place returns the index of the first record of recs at or after rev.
func place(recs []*record, rev Revision) int {
	// With one change to a revision and nothing dropped, which is the usual case in the
	// young part, the place can be told from the number.
	if len(recs) > 0 {
		guess := rev.Main - recs[0].ModRevision
		if guess >= 0 && guess < int64(len(recs)) && recs[guess].rev() == rev {
			return int(guess)
		}
	}
	return sort.Search(len(recs), func(i int) bool { return !recs[i].rev().Less(rev) })
}

// find returns the record of that revision, nil if there is none.
func (h *history) find(rev Revision) *record {
	i := h.chunkOf(rev)
	if i < 0 {
		return nil
	}
	recs := h.chunk(i)
	if k := place(recs, rev); k < len(recs) && recs[k].rev() == rev {
		return recs[k]
	}
	return nil
}

// from yields the records at or after rev, in order.
func (h *history) from(rev Revision) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		i := max(h.chunkOf(rev), 0)
		recs := h.chunk(i)
		recs = recs[place(recs, rev):]
		for {
			for _, r := range recs {
				if !yield(r) {
					return
				}
			}
			if i++; i > len(h.dir) {
				return
			}
			recs = h.chunk(i)
		}
	}
}

// countFrom returns about how many records there are at or after rev, never too few.
func (h *history) countFrom(rev Revision) int {
	i := max(h.chunkOf(rev), 0)
	return (len(h.dir)-i)*chunkSize + len(h.tail)
}

// drop removes the record of that revision, which must not be in the tail. It reports whether
// there was one.
func (h *history) drop(rev Revision) bool {
	i := h.chunkOf(rev)
	if i < 0 {
		return false
	}
	if i == len(h.dir) {
		panic("mvcc: drop from the tail of the history")
	}
	c := h.dir[i].c
	k := place(c.recs, rev)
	if k == len(c.recs) || c.recs[k].rev() != rev {
		return false
	}
	if c.generation == h.generation {
		c.recs = slices.Delete(c.recs, k, k+1)
		return true
	}
	recs := make([]*record, 0, len(c.recs)-1)
	recs = append(append(recs, c.recs[:k]...), c.recs[k+1:]...)
	h.ownDir()
	h.dir[i].c = &chunk{recs: recs, generation: h.generation}
	return true
}

// ownDir makes sure that no view sees a change of the directory.
func (h *history) ownDir() {
	if h.dirGeneration != h.generation {
		h.dir = slices.Clone(h.dir)
		h.dirGeneration = h.generation
	}
}

// merge joins neighbouring chunks that have become small, and forgets empty ones.
func (h *history) merge() {
	out := make([]chunkRef, 0, len(h.dir)+1)
	for _, ref := range h.dir {
		n := len(ref.c.recs)
		if n == 0 {
			continue
		}
		if len(out) == 0 || len(out[len(out)-1].c.recs)+n > chunkSize*3/4 {
			out = append(out, ref)
			continue
		}
		last := &out[len(out)-1]
		if last.c.generation != h.generation {
			recs := append(make([]*record, 0, chunkSize*3/4), last.c.recs...)
			last.c = &chunk{recs: recs, generation: h.generation}
		}
		last.c.recs = append(last.c.recs, ref.c.recs...)
	}
	h.dir = out
	h.dirGeneration = h.generation
}
