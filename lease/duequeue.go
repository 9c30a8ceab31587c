package lease

// dueQueue is a heap of leases past their expiry, ordered by expiry and then ID.
//
// An entry is stale if the expiry of its lease has changed, or if the lease is gone.
//
// Invariant: no entry sorts before its parent. The parent of entry i is entry (i-1)/fanOut.
type dueQueue struct {
	entries paged[dueEntry]
	len     uint32
}

type dueEntry struct {
	expiry Instant
	placed
}

// fanOut keeps the heap shallow, because each level costs a cache miss. With a million leases due,
// the heap has ten levels. A binary heap would have twenty.
const fanOut = 4

// before reports whether e sorts before o.
func (e *dueEntry) before(o *dueEntry) bool {
	return e.expiry < o.expiry || e.expiry == o.expiry && e.id < o.id
}

func (q *dueQueue) push(e dueEntry) {
	i := q.len
	q.len++
	hole := q.entries.grow(i)
	for i > 0 {
		i = (i - 1) / fanOut
		parent := q.entries.at(i)
		if !e.before(parent) {
			break
		}
		*hole, hole = *parent, parent
	}
	*hole = e
}

// pop removes and returns the first entry. The queue must not be empty.
func (q *dueQueue) pop() dueEntry {
	hole := q.entries.at(0)
	first := *hole
	q.len--
	e := q.entries.at(q.len)
	for i := uint32(0); i*fanOut+1 < q.len; {
		i = q.firstOf(i*fanOut + 1)
		child := q.entries.at(i)
		if !child.before(e) {
			break
		}
		*hole, hole = *child, child
	}
	*hole = *e
	return first
}

// firstOf returns the index of the entry that sorts first among siblings. child is the index of the
// first sibling.
func (q *dueQueue) firstOf(child uint32) uint32 {
	first, e := child, q.entries.at(child)
	for i := child + 1; i < min(child+fanOut, q.len); i++ {
		if c := q.entries.at(i); c.before(e) {
			first, e = i, c
		}
	}
	return first
}
