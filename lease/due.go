package lease

import (
	"cmp"
	"slices"
)

// dueQueue holds leases that are past their expiry, by expiry and then ID.
//
// A heap of leases would miss the cache at each of its levels when a million
// are due. So leases are gathered by expiry, only the expiries are in a heap,
// and those of one expiry are sorted when their turn comes: no pile-up has to
// be put in order all at once.
//
// An entry is stale if its lease has another expiry now, or is not there.
//
// Invariants: instants are the keys of lists, none before its parent; no list
// is empty, and those marked as sorted are.
type dueQueue struct {
	lists    map[Instant]*dueList
	instants []Instant
}

// dueList is the leases of one expiry.
type dueList struct {
	leases []placed
	sorted bool // the lowest ID last, where it is taken from
}

// nearEnd is how many entries push would rather move than sort a list again.
// Leases that come back because their decision was dropped had the lowest IDs
// of their list, so they belong near its end.
const nearEnd = 4096

func descending(a, b placed) int { return cmp.Compare(b.id, a.id) }

// push adds a lease.
func (q *dueQueue) push(expiry Instant, p placed) {
	list := q.lists[expiry]
	if list == nil {
		if q.lists == nil {
			q.lists = make(map[Instant]*dueList)
		}
		list = &dueList{}
		q.lists[expiry] = list
		q.rise(expiry)
	}
	at := len(list.leases)
	if list.sorted {
		i, _ := slices.BinarySearchFunc(list.leases, p, descending)
		list.sorted = at-i <= nearEnd
		if list.sorted {
			at = i
		}
	}
	list.leases = slices.Insert(list.leases, at, p)
}

// pop takes the first lease. The queue must not be empty.
func (q *dueQueue) pop() (expiry Instant, p placed) {
	expiry = q.instants[0]
	list := q.lists[expiry]
	if !list.sorted {
		slices.SortFunc(list.leases, descending)
		list.sorted = true
	}
	last := len(list.leases) - 1
	p = list.leases[last]
	list.leases = list.leases[:last]
	if last == 0 {
		delete(q.lists, expiry)
		q.sink()
	}
	return expiry, p
}

// rise adds an instant to the heap.
func (q *dueQueue) rise(at Instant) {
	q.instants = append(q.instants, at)
	h := q.instants
	i := len(h) - 1
	for i > 0 && at < h[(i-1)/2] {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = at
}

// sink takes the first instant from the heap.
func (q *dueQueue) sink() {
	last := len(q.instants) - 1
	at := q.instants[last]
	h := q.instants[:last]
	q.instants = h
	i := 0
	for child := 1; child < len(h); child = 2*i + 1 {
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if at <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	if last > 0 {
		h[i] = at
	}
}
