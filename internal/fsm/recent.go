package fsm

import "slices"

// recentBytes is the approximate maximum size of a recent. It does not count toward the size of the
// state, although it includes the full text of leases that are gone.
const recentBytes = 32 << 20

// recent holds the latest items of a series, oldest first. A copy is immutable, and any goroutine
// may read it while the original changes.
//
// Invariants: full and tail are only appended to, so that copies can share them; kept is the number
// of items; bytes is the size of the items in full, and sizes has the size of each chunk.
type recent[T any] struct {
	full  [][]T
	tail  []T
	kept  int
	most  int // how many to keep
	sizes []int64
	bytes int64
	begun int64 // size of the items in tail
}

// chunkLen is the number of items in a chunk. A recent may keep up to that many items beyond most.
func (r *recent[T]) chunkLen() int { return max(1, min(512, r.most/8)) }

// push adds the newest item, which takes size bytes, and returns the items that are no longer kept.
func (r *recent[T]) push(v T, size int64) (dropped []T) {
	most := r.chunkLen()
	if len(r.tail) == most || r.begun >= recentBytes/8 {
		r.full, r.sizes = append(r.full, r.tail), append(r.sizes, r.begun)
		r.bytes += r.begun
		r.tail, r.begun = nil, 0
	}
	if r.tail == nil {
		for r.kept >= r.most+most || r.bytes > recentBytes {
			dropped = r.full[0]
			r.bytes -= r.sizes[0]
			// clone, because copies share the old slice
			r.full, r.sizes = slices.Clone(r.full[1:]), r.sizes[1:]
			r.kept -= len(dropped)
		}
		r.tail = make([]T, 0, most)
	}
	r.tail = append(r.tail, v)
	r.begun += size
	r.kept++
	return dropped
}

// last returns the last n items. If they are not contiguous in memory, it returns only the first
// contiguous part of them.
func (r *recent[T]) last(n int) []T {
	chunk := r.tail
	for i := len(r.full) - 1; n > len(chunk); i-- {
		n -= len(chunk)
		chunk = r.full[i]
	}
	return slices.Clip(chunk[len(chunk)-n:])
}
