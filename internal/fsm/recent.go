package fsm

import "slices"

// recentBytes bounds, about, what the things of a recent take, which is no part of what the
// state takes: leases that are gone are in it with all their texts.
const recentBytes = 32 << 20

// recent is the last of what happened, oldest first. A copy of it is an immutable
// picture, which any goroutine may read while the original goes on.
//
// Invariants: full and tail are only appended to, so that a picture shares them; kept is how
// many things there are, and bytes what those of full take, each chunk as sizes says.
type recent[T any] struct {
	full  [][]T
	tail  []T
	kept  int
	most  int // that are to be kept
	sizes []int64
	bytes int64
	begun int64 // what the things of tail take
}

// chunkLen is how many things a chunk holds, and are kept in excess at most.
func (r *recent[T]) chunkLen() int { return max(1, min(512, r.most/8)) }

// push adds the newest, which takes so many bytes, and returns the last of those that are not
// kept any more.
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
			r.full, r.sizes = slices.Clone(r.full[1:]), r.sizes[1:] // a picture has the others
			r.kept -= len(dropped)
		}
		r.tail = make([]T, 0, most)
	}
	r.tail = append(r.tail, v)
	r.begun += size
	r.kept++
	return dropped
}

// last returns the last n things, or as many of the first of those as lie
// together.
func (r *recent[T]) last(n int) []T {
	chunk := r.tail
	for i := len(r.full) - 1; n > len(chunk); i-- {
		n -= len(chunk)
		chunk = r.full[i]
	}
	return slices.Clip(chunk[len(chunk)-n:])
}
