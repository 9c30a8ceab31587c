package lease

// dueEntry is a lease that was past its expiry when it was pushed. It is stale
// if the lease has another expiry now, or is not there.
type dueEntry struct {
	expiry Instant
	id     ID
	slot   uint32
}

func (e *dueEntry) before(f *dueEntry) bool {
	return e.expiry < f.expiry || e.expiry == f.expiry && e.id < f.id
}

// dueQueue is a heap of four children a node: half as deep as one of two, and
// the four are next to each other in memory.
// Invariant: no entry is before its parent.
type dueQueue []dueEntry

const dueFan = 4

func (q *dueQueue) push(e dueEntry) {
	*q = append(*q, e)
	h := *q
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / dueFan
		if !e.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

// pop takes the first entry of a queue that is not empty.
func (q *dueQueue) pop() dueEntry {
	h := *q
	first, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*q = h
	if len(h) == 0 {
		return first
	}
	i := 0
	for {
		child := i*dueFan + 1
		if child >= len(h) {
			break
		}
		for c := child + 1; c < min(child+dueFan, len(h)); c++ {
			if h[c].before(&h[child]) {
				child = c
			}
		}
		if !h[child].before(&last) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = last
	return first
}
