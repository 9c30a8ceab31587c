// Package confirm runs the confirm rounds of a leader: a quorum says, after a promise was made,
// that the member still leads. One round serves all that wait.
//
// A Queue knows when a round begins and what it serves. Its caller asks the quorum, tells how that
// ended, and answers those that were served. A Queue is pure: it has no clock, starts nothing and
// sends nothing.
package confirm

import "slices"

// Batch is what one round serves: all that waited when it began.
type Batch[T any] interface {
	// Empty reports whether nothing waits.
	Empty() bool
	// Emptied returns an empty batch with the memory of this one.
	Emptied() T
}

// Queue runs one round at a time. What comes while a round is under way waits for the next, since a
// promise is confirmed only by a round that began after it was made (rule 4).
type Queue[T Batch[T]] struct {
	// Next is what waits for the next round. The caller adds to it.
	Next T

	current round[T] // asked, not yet confirmed; its id is 0 if none is
	done    []round[T]
	last    uint64 // id of the last round begun
	spare   T      // empty, with the memory of a round that is over
}

// round is one round.
type round[T any] struct {
	id    uint64
	index uint64 // the round is over when this is applied
	batch T
}

// After returns a queue whose rounds have IDs after last: those of rounds that were asked before
// must not be taken for its own.
func After[T Batch[T]](last uint64) Queue[T] { return Queue[T]{last: last} }

// Last returns the ID of the last round.
func (q *Queue[T]) Last() uint64 { return q.last }

// HasNext reports whether Begin would begin a round.
func (q *Queue[T]) HasNext() bool { return q.current.id == 0 && !q.Next.Empty() }

// Begin begins a round if anything waits and none is under way. The quorum is to be asked with the
// ID then.
func (q *Queue[T]) Begin() (id uint64, ok bool) {
	if !q.HasNext() {
		return 0, false
	}
	q.last++
	q.current = round[T]{id: q.last, batch: q.Next}
	var none T
	q.Next, q.spare = q.spare, none
	return q.last, true
}

// Current returns the ID of the round that is under way, if there is one.
func (q *Queue[T]) Current() (id uint64, ok bool) { return q.current.id, q.current.id != 0 }

// Confirmed says that a quorum has confirmed a round. What it serves may be answered from a state
// of that index or later.
func (q *Queue[T]) Confirmed(id, index uint64) {
	if id == 0 || id != q.current.id {
		return
	}
	q.current.index = index
	q.done = append(q.done, q.current)
	q.current = round[T]{}
}

// Release returns what the oldest round served, and the round's index, if that is applied.
func (q *Queue[T]) Release(applied uint64) (batch T, index uint64, ok bool) {
	if len(q.done) == 0 || q.done[0].index > applied {
		return batch, 0, false
	}
	first := q.done[0]
	q.done = slices.Delete(q.done, 0, 1)
	return first.batch, first.index, true
}

// Reuse gives the queue the memory of a batch that Release returned, and that is answered.
func (q *Queue[T]) Reuse(batch T) { q.spare = batch.Emptied() }

// Close ends all rounds, because the member does not lead any more, and returns what they would
// have served, that which came first first. No promise of these may be told.
func (q *Queue[T]) Close() []T {
	var all []T
	for i := range q.done {
		all = append(all, q.done[i].batch)
	}
	if q.current.id != 0 {
		all = append(all, q.current.batch)
	}
	all = append(all, q.Next)
	*q = Queue[T]{last: q.last}
	return all
}
