package native

import (
	"time"

	"leasehold.dev/internal/api"
)

// timing is what is known of the time of a request.
type timing struct {
	trace Traced // nil if nothing is to be known of it
	kind  string // in case that it takes long; "" for one that may last, or if none is slow
	begun time.Time
	late  Traced // set by the core before it answers; may be nil
}

// Late implements Late.
func (q *request) Late(of Traced) { q.late = of }

// now is the present instant, if that is of interest.
func (s *Slow) now() time.Time {
	if s.After <= 0 {
		return time.Time{}
	}
	return time.Now()
}

// ended tells of a request that it has its answer, if that is of interest.
func (t *stream) ended(q *request, now time.Time) {
	x := q.trace
	if x == nil && q.kind != "" && now.Sub(q.begun) >= t.o.Slow.After {
		x = t.o.Slow.Call(q.kind, q.begun, q.late)
	}
	if x != nil {
		x.End(api.Error(q.err))
	}
}
