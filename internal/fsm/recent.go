package fsm

import "slices"

// recent is the last of what happened, oldest first. A copy of it is an immutable
// picture, which any goroutine may read while the original goes on.
//
// Invariants: chunks of full have chunkLen things each, tail has at most as many;
// both are only appended to, so that a picture shares them; kept is how many there
// are.
type recent[T any] struct {
	full [][]T
	tail []T
	kept int
	most int // that are to be kept
}

// chunkLen is how many things a chunk holds, and are kept in excess at most.
func (r *recent[T]) chunkLen() int { return max(1, min(512, r.most/8)) }

// push adds the newest, and returns those that are not kept any more.
func (r *recent[T]) push(v T) (dropped []T) {
	size := r.chunkLen()
	if len(r.tail) == size {
		r.full, r.tail = append(r.full, r.tail), nil
	}
	if r.tail == nil {
		if r.kept >= r.most+size {
			dropped = r.full[0]
			r.full = slices.Clone(r.full[1:]) // a picture has the other
			r.kept -= size
		}
		r.tail = make([]T, 0, size)
	}
	r.tail = append(r.tail, v)
	r.kept++
	return dropped
}

// last returns the last n things, or as many of the first of those as lie
// together; nil if n is 0.
func (r *recent[T]) last(n int) []T {
	if n == 0 {
		return nil
	}
	if n <= len(r.tail) {
		return slices.Clip(r.tail[len(r.tail)-n:])
	}
	n -= len(r.tail)
	size := r.chunkLen()
	chunk := r.full[len(r.full)-(n+size-1)/size]
	return slices.Clip(chunk[(size-n%size)%size:])
}
