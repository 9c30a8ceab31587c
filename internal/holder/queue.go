package holder

import "container/heap"

// when contains the instants of a lease, one for each queue that contains the lease.
type when struct {
	at    [queues]instant
	place [queues]int // index in each queue
}

// The queues that contain a lease.
const (
	turns  = iota // ordered by when to renew the lease
	ends          // ordered by when the state changes unless the lease is renewed
	queues        // the number of queues
)

// queue orders leases by one of their instants, and then by ID. It implements heap.Interface.
type queue struct {
	by    int
	items []*held
}

// first returns the first lease of the queue, if its instant is not after now.
func (q *queue) first(now instant) (*held, bool) {
	if len(q.items) == 0 || q.items[0].at[q.by] > now {
		return nil, false
	}
	return q.items[0], true
}

// set changes the instant of a lease in this queue.
func (q *queue) set(l *held, at instant) {
	l.at[q.by] = at
	heap.Fix(q, l.place[q.by])
}

func (q *queue) add(l *held, at instant) {
	l.at[q.by] = at
	heap.Push(q, l)
}

func (q *queue) remove(l *held) { heap.Remove(q, l.place[q.by]) }

// Len implements heap.Interface.
func (q *queue) Len() int { return len(q.items) }

// Less implements heap.Interface.
func (q *queue) Less(i, j int) bool {
	a, b := q.items[i], q.items[j]
	if a.at[q.by] != b.at[q.by] {
		return a.at[q.by] < b.at[q.by]
	}
	return a.ID < b.ID
}

// Swap implements heap.Interface.
func (q *queue) Swap(i, j int) {
	q.items[i], q.items[j] = q.items[j], q.items[i]
	q.items[i].place[q.by], q.items[j].place[q.by] = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	l := x.(*held)
	l.place[q.by] = len(q.items)
	q.items = append(q.items, l)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	n := len(q.items) - 1
	l := q.items[n]
	q.items[n] = nil
	q.items = q.items[:n]
	return l
}
