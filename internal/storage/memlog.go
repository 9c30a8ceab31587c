package storage

import (
	"cmp"
	"slices"
	"sort"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A memlog describes the log in memory: where it begins and ends, the term and place of every
// entry, and the newest entries themselves. It is not safe for concurrent use.
//
// Invariant: first <= tailFirst <= last+1, and tail contains exactly the entries tailFirst..last.
// Places are sorted by index, and the first place contains the first entry.
type memlog struct {
	prev  position   // position before the first entry
	last  uint64     // index of the last entry; prev.index if the log is empty
	terms []position // start of each run of equal terms; the first run starts at or before prev

	places  []place
	written uint64 // total size of all places

	tail      []*raftpb.Entry
	tailFirst uint64
	tailBytes int64
	tailMax   int64
}

// place locates the frame that contains the entries from index up to the next place's index.
type place struct {
	index   uint64
	segment *segment
	at      int64
	size    int64
	written uint64 // total size of all places before it
}

// reset empties the log and makes it begin after prev.
func (l *memlog) reset(prev position) {
	*l = memlog{
		prev: prev, last: prev.index, tailFirst: prev.index + 1, tailMax: l.tailMax,
		terms: []position{prev}, written: l.written,
	}
}

func (l *memlog) first() uint64 { return l.prev.index + 1 }

// append adds the entries of one frame. They must be consecutive and start between first and
// last+1. They replace existing entries with the same index and all entries after them.
func (l *memlog) append(entries []*raftpb.Entry, f *frame, s *segment) {
	if len(entries) == 0 {
		return
	}
	at := entries[0].GetIndex()
	if at <= l.last {
		l.truncate(at)
	}
	l.place(at, f, s)
	for _, e := range entries {
		l.push(e)
	}
	l.evict()
}

// place records where the entries at and after an index are. They may have replaced other entries.
func (l *memlog) place(index uint64, f *frame, s *segment) {
	i := sort.Search(len(l.places), func(i int) bool { return l.places[i].index >= index })
	if i < len(l.places) {
		l.written = l.places[i].written
	}
	l.places = append(l.places[:i], place{index, s, f.at, f.size, l.written})
	l.written += uint64(len(f.payload))
}

// placesOf returns the places of the entries in [lo, hi). It also returns the place after them, if
// there is one, because it shows where the last of them ends.
func (l *memlog) placesOf(lo, hi uint64) []place {
	i := sort.Search(len(l.places), func(i int) bool { return l.places[i].index > lo })
	j := sort.Search(len(l.places), func(i int) bool { return l.places[i].index >= hi })
	i = max(i-1, 0)
	return slices.Clone(l.places[i:min(max(i, j)+1, len(l.places))])
}

// bytesAfter returns the total size of the commits that contain the entries after an index.
func (l *memlog) bytesAfter(index uint64) uint64 {
	if index >= l.last || len(l.places) == 0 {
		return 0
	}
	return l.written - l.placesOf(index+1, index+2)[0].written
}

func (l *memlog) push(e *raftpb.Entry) {
	l.last++
	if e.GetIndex() != l.last {
		panic("storage: entries are not consecutive")
	}
	if t := e.GetTerm(); t != l.terms[len(l.terms)-1].term {
		l.terms = append(l.terms, position{index: l.last, term: t})
	}
	l.tail = append(l.tail, e)
	l.tailBytes += int64(entrySize(e))
}

// truncate removes all entries at or after index; first <= index <= last.
func (l *memlog) truncate(index uint64) {
	if index >= l.tailFirst {
		keep := int(index - l.tailFirst)
		for _, e := range l.tail[keep:] {
			l.tailBytes -= int64(entrySize(e))
		}
		clear(l.tail[keep:])
		l.tail = l.tail[:keep]
	} else {
		l.tail, l.tailBytes, l.tailFirst = nil, 0, index
	}
	for l.terms[len(l.terms)-1].index >= index {
		l.terms = l.terms[:len(l.terms)-1]
	}
	l.last = index - 1
}

// evict removes entries from the front of the tail until the tail is small enough.
func (l *memlog) evict() {
	for l.tailBytes > l.tailMax && len(l.tail) > 1 {
		l.dropFront()
	}
}

func (l *memlog) dropFront() {
	l.tailBytes -= int64(entrySize(l.tail[0]))
	l.tail[0] = nil // otherwise the array would keep the entry alive
	l.tail = l.tail[1:]
	l.tailFirst++
}

// compact removes all entries up to and including p, which must be in the log.
func (l *memlog) compact(p position) {
	for l.tailFirst <= p.index {
		l.dropFront()
	}
	l.prev = p
	i := sort.Search(len(l.places), func(i int) bool { return l.places[i].index > p.index+1 })
	l.places = slices.Delete(l.places, 0, max(i-1, 0))
	l.terms = slices.Delete(l.terms, 0, l.run(p.index))
	if l.terms[0].index == p.index {
		// if the log was loaded from this position, the term was unknown until now
		l.terms[0].term = p.term
	}
}

// run returns the run of terms that contains index, which must not be less than prev.index.
func (l *memlog) run(index uint64) int {
	i, found := slices.BinarySearchFunc(l.terms, index, func(p position, x uint64) int {
		return cmp.Compare(p.index, x)
	})
	if !found {
		i--
	}
	return i
}

// term returns the term of entry i. It returns the errors that raft.Storage specifies.
func (l *memlog) term(i uint64) (uint64, error) {
	if i < l.prev.index {
		return 0, raft.ErrCompacted
	}
	if i > l.last {
		return 0, raft.ErrUnavailable
	}
	return l.terms[l.run(i)].term, nil
}

// has reports whether the log contains an entry at p, or begins after p.
func (l *memlog) has(p position) bool {
	t, err := l.term(p.index)
	return err == nil && t == p.term
}

// cached returns a copy of the entries [lo, hi) from the tail. The size is limited to maxBytes, but
// at least one entry is returned. lo must be in the tail.
func (l *memlog) cached(lo, hi, maxBytes uint64) []*raftpb.Entry {
	from := l.tail[lo-l.tailFirst : hi-l.tailFirst]
	return slices.Clone(from[:limit(from, maxBytes)])
}

// limit returns how many entries fit in maxBytes, always counting the first one.
func limit(entries []*raftpb.Entry, maxBytes uint64) int {
	var size uint64
	for i, e := range entries {
		size += uint64(entrySize(e))
		if size > maxBytes && i > 0 {
			return i
		}
	}
	return len(entries)
}

// entrySize returns the protobuf size of an entry, which is the size that Raft counts. Calling
// proto.Size would cost more than the rest of an append.
func entrySize(e *raftpb.Entry) int {
	n := 0
	if e.Type != nil {
		n += 1 + uvarintLen(uint64(*e.Type))
	}
	if e.Term != nil {
		n += 1 + uvarintLen(*e.Term)
	}
	if e.Index != nil {
		n += 1 + uvarintLen(*e.Index)
	}
	if e.Data != nil {
		n += 1 + uvarintLen(uint64(len(e.Data))) + len(e.Data)
	}
	return n
}
