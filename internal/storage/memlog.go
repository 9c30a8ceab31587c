package storage

import (
	"cmp"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// markBytes is how far apart, in bytes of log, the sizes of the log are
// remembered.
const markBytes = 64 << 10

// A memlog is what is known of the log without reading the disk: where it begins
// and ends, the term of every entry, roughly how many bytes lie behind any
// index, and the newest entries themselves. It is not safe for concurrent use.
//
// Invariant: first <= tailFirst <= last+1, and tail[head:] holds exactly the
// entries tailFirst..last.
type memlog struct {
	prev  position   // the position before the first entry
	last  uint64     // prev.index if the log is empty
	terms []position // where each run of one term begins; the first at prev, or before

	tail      []*raftpb.Entry
	head      int
	tailFirst uint64
	tailBytes int64
	tailMax   int64

	// marks are increasing in index and bytes; bytes counts all up to and
	// including index, from an arbitrary start.
	marks []sizeMark
	bytes uint64 // up to last
}

type sizeMark struct{ index, bytes uint64 }

// reset makes the log empty, beginning after prev.
func (l *memlog) reset(prev position) {
	*l = memlog{
		prev: prev, last: prev.index, tailFirst: prev.index + 1, tailMax: l.tailMax,
		terms: []position{prev}, marks: []sizeMark{{index: prev.index}},
	}
}

func (l *memlog) first() uint64 { return l.prev.index + 1 }

// append adds entries, which must follow each other and begin between first and
// last+1; those it replaces, and all after them, go.
func (l *memlog) append(entries []*raftpb.Entry) {
	if len(entries) == 0 {
		return
	}
	if at := entries[0].GetIndex(); at <= l.last {
		l.truncate(at)
	}
	for _, e := range entries {
		l.push(e)
	}
	l.evict()
}

func (l *memlog) push(e *raftpb.Entry) {
	l.last++
	if e.GetIndex() != l.last {
		panic("storage: entries do not follow each other")
	}
	if t := e.GetTerm(); t != l.terms[len(l.terms)-1].term {
		l.terms = append(l.terms, position{index: l.last, term: t})
	}
	n := entrySize(e)
	l.bytes += uint64(n)
	if l.bytes-l.marks[len(l.marks)-1].bytes >= markBytes {
		l.marks = append(l.marks, sizeMark{index: l.last, bytes: l.bytes})
	}
	l.tail = append(l.tail, e)
	l.tailBytes += int64(n)
}

// truncate drops the entries from index on; first <= index <= last.
func (l *memlog) truncate(index uint64) {
	measured := index >= l.tailFirst
	if measured {
		keep := l.head + int(index-l.tailFirst)
		for _, e := range l.tail[keep:] {
			n := entrySize(e)
			l.tailBytes -= int64(n)
			l.bytes -= uint64(n)
		}
		clear(l.tail[keep:])
		l.tail = l.tail[:keep]
	} else {
		l.tail, l.head, l.tailBytes, l.tailFirst = nil, 0, 0, index
	}
	for l.terms[len(l.terms)-1].index >= index {
		l.terms = l.terms[:len(l.terms)-1]
	}
	end := sizeMark{index: l.last, bytes: l.bytes}
	for l.marks[len(l.marks)-1].index >= index {
		end = l.marks[len(l.marks)-1]
		l.marks = l.marks[:len(l.marks)-1]
	}
	if !measured {
		l.bytes = between(l.marks[len(l.marks)-1], end, index-1)
	}
	l.last = index - 1
}

// between guesses the size up to index from the marks on both sides of it.
func between(a, b sizeMark, index uint64) uint64 {
	return a.bytes + uint64(float64(b.bytes-a.bytes)*
		float64(index-a.index)/float64(b.index-a.index))
}

// evict drops entries from the front of the tail until it is small enough.
func (l *memlog) evict() {
	for l.tailBytes > l.tailMax && len(l.tail)-l.head > 1 {
		l.dropFront()
	}
	l.pack()
}

func (l *memlog) dropFront() {
	l.tailBytes -= int64(entrySize(l.tail[l.head]))
	l.tail[l.head] = nil // or the array would keep it alive
	l.head++
	l.tailFirst++
}

// pack moves the tail to the start of its array once half of that is unused.
func (l *memlog) pack() {
	if l.head > len(l.tail)/2 {
		n := copy(l.tail, l.tail[l.head:])
		clear(l.tail[n:])
		l.tail, l.head = l.tail[:n], 0
	}
}

// compact makes p, which is in the log, the position before the first entry.
func (l *memlog) compact(p position) {
	for l.tailFirst <= p.index {
		l.dropFront()
	}
	l.pack()
	l.prev = p
	l.terms = slices.Delete(l.terms, 0, l.run(p.index))
	if l.terms[0].index == p.index {
		l.terms[0].term = p.term // which was unknown if the log was read from here on
	}
	l.marks = slices.Delete(l.marks, 0, l.mark(p.index))
}

// run returns the number of the term run that index, which is not before prev, belongs to.
func (l *memlog) run(index uint64) int {
	i, found := slices.BinarySearchFunc(l.terms, index, func(p position, x uint64) int {
		return cmp.Compare(p.index, x)
	})
	if !found {
		i--
	}
	return i
}

// mark returns the number of the last size mark at or before index, or of the first.
func (l *memlog) mark(index uint64) int {
	i, found := slices.BinarySearchFunc(l.marks, index, func(m sizeMark, x uint64) int {
		return cmp.Compare(m.index, x)
	})
	if !found {
		i--
	}
	return max(i, 0)
}

// term returns the term of entry i, as raft.Storage asks for it.
func (l *memlog) term(i uint64) (uint64, error) {
	if i < l.prev.index {
		return 0, raft.ErrCompacted
	}
	if i > l.last {
		return 0, raft.ErrUnavailable
	}
	return l.terms[l.run(i)].term, nil
}

// has reports whether the log has an entry, or its beginning, at p.
func (l *memlog) has(p position) bool {
	t, err := l.term(p.index)
	return err == nil && t == p.term
}

// bytesAfter returns the size of the entries after index, too large by at most
// one markBytes and an entry; less exactly after entries that are not in memory
// were replaced.
func (l *memlog) bytesAfter(index uint64) uint64 {
	if index >= l.last {
		return 0
	}
	return l.bytes - l.marks[l.mark(index)].bytes
}

// cached returns a copy of the tail's slice [lo, hi), cut where it exceeds
// maxBytes, but with one entry at least. lo must be in the tail.
func (l *memlog) cached(lo, hi, maxBytes uint64) []*raftpb.Entry {
	from := l.tail[l.head+int(lo-l.tailFirst) : l.head+int(hi-l.tailFirst)]
	return slices.Clone(from[:limit(from, maxBytes)])
}

// limit returns how many of the entries fit into maxBytes, one at least.
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

// entrySize is the size of an entry as protobuf, which is how Raft counts. It is
// computed here because proto.Size costs more than the rest of an append.
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
