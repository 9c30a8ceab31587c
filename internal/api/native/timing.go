package native

import (
	"time"

	"leasehold.dev/internal/api"
)

// timing contains the timing data of a request.
type timing struct {
	trace Traced // nil if the request is not traced
	// used if the request is slow; "" if it is long-lived or slow requests are not reported
	kind  string
	begun time.Time
	late  Traced // set by the core before it answers; may be nil
}

// Late implements Late.
func (q *request) Late(of Traced) { q.late = of }

// now returns the current time if it is needed, or the zero time otherwise.
func (s *Slow) now() time.Time {
	if s.After <= 0 {
		return time.Time{}
	}
	return time.Now()
}

// ended ends the timing of an answered request, if there is one.
func (t *stream) ended(q *request, now time.Time) {
	x := q.trace
	if x == nil && q.kind != "" && now.Sub(q.begun) >= t.o.Slow.After {
		x = t.o.Slow.Call(q.kind, q.begun, q.late)
	}
	if x != nil {
		x.End(api.Error(q.err))
	}
}
