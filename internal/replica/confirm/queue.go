// Package confirm runs a leader's confirm rounds. In a confirm round, a quorum confirms that the
// member still leads. A round that begins after a promise was made confirms that promise. One round
// confirms all waiting requests.
//
// A Queue decides when a round begins and which requests it confirms. Its caller queries the
// quorum, reports the outcome, and answers the requests. A Queue is pure: it has no clock, starts
// no goroutine and sends nothing.
package confirm

import "slices"

// Batch is the set of requests that one round confirms: everything that was waiting when it began.
type Batch[T any] interface {
	// Empty reports whether the batch has no requests.
	Empty() bool
	// Emptied returns an empty batch that reuses the memory of this one.
	Emptied() T
}

// Queue runs one round at a time. Requests that arrive during a round wait for the next one,
// because a promise is confirmed only by a round that began after the promise was made (rule 4).
type Queue[T Batch[T]] struct {
	// Next is the batch for the next round. The caller adds requests to it.
	Next T

	current round[T] // the round in progress; its id is 0 if there is none
	done    []round[T]
	last    uint64 // id of the last round that began
	spare   T      // empty batch with the memory of a finished round
}

type round[T any] struct {
	id    uint64
	index uint64 // the round is over once this index is applied
	batch T
}

// After returns a queue whose round IDs are greater than last, so that earlier rounds are not
// mistaken for its own.
func After[T Batch[T]](last uint64) Queue[T] { return Queue[T]{last: last} }

// Last returns the ID of the last round.
func (q *Queue[T]) Last() uint64 { return q.last }

// HasNext reports whether Begin would begin a round.
func (q *Queue[T]) HasNext() bool { return q.current.id == 0 && !q.Next.Empty() }

// Begin begins a round if requests are waiting and no round is in progress. The caller must then
// query the quorum with the ID.
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

// Current returns the ID of the round in progress, if there is one.
func (q *Queue[T]) Current() (id uint64, ok bool) { return q.current.id, q.current.id != 0 }

// Confirmed records that a quorum has confirmed a round. The requests in its batch can be answered
// from any state at or after index.
func (q *Queue[T]) Confirmed(id, index uint64) {
	if id == 0 || id != q.current.id {
		return
	}
	q.current.index = index
	q.done = append(q.done, q.current)
	q.current = round[T]{}
}

// Release returns the batch and index of the oldest confirmed round, if that index has been
// applied.
func (q *Queue[T]) Release(applied uint64) (batch T, index uint64, ok bool) {
	if len(q.done) == 0 || q.done[0].index > applied {
		return batch, 0, false
	}
	first := q.done[0]
	q.done = slices.Delete(q.done, 0, 1)
	return first.batch, first.index, true
}

// Reuse gives the queue the memory of a batch that Release returned and that has been answered.
func (q *Queue[T]) Reuse(batch T) { q.spare = batch.Emptied() }

// Close ends all rounds because the member no longer leads. It returns their batches, oldest first.
// The promises in them must not be released.
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
