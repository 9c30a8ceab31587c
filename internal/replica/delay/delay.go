// Package delay is the commit delay: whether commands wait a moment for others before they are
// proposed, so that all share one entry and one sync.
//
// Without it, callers that wait for their answers before they ask again form two groups. While one
// group waits for its sync, the other is answered. So each sync serves half of the callers, and a
// command that comes just after a sync has begun waits for two. Two callers that take turns, as
// the holders of a lock do, take twice the time that they need.
//
// As many callers as were answered, or wait when the log is free, are likely to ask again soon. So
// the commands that wait then go on once nearly as many have come, or when the owner says that the
// delay is over (End): it alone measures such short times. If the others do not come, nothing is
// delayed at the next entries: at more of them after each such failure in a row. A caller that is
// alone is never delayed.
//
// The package is pure: instants are arguments.
package delay

import "leasehold.dev/lease"

// Delay is the commit delay of one log. The zero value delays nothing until Free was called.
type Delay struct {
	answered int           // commands answered since the last entry was proposed
	since    lease.Instant // when the first of them was
	begun    bool          // the log is free, and want is set
	had      int           // commands that waited when it became so
	want     int           // how many make it worth while to go on; 0 while it is not free
	waited   bool          // the commands were delayed
	over     bool          // it was long enough

	crowd   int // callers seen at once: those answered and those that waited
	skip    int // for how many entries nothing is delayed
	failure int // failures in a row
}

const (
	// stale is how long after the answers (in milliseconds) no caller is expected to come back.
	stale = 5
	// maxFailures bounds for how long nothing is delayed: for 2^maxFailures-2 entries.
	maxFailures = 5
)

// Free says that the log is free while n commands wait.
func (d *Delay) Free(n int) {
	if d.answered == 0 || d.begun {
		return
	}
	// The crowd of the entry before counts as well: two callers that take turns are
	// never seen at once. One in eight may stay away or be late.
	crowd := n + d.answered
	want := max(crowd, d.crowd)
	d.begun, d.had, d.want, d.crowd = true, n, want-want/8, crowd
}

// Holds reports whether the n commands that wait are to wait for others.
func (d *Delay) Holds(n int, now lease.Instant) bool {
	if n >= d.want || d.skip > 0 || d.over || now-d.since > stale {
		return false
	}
	d.waited = true
	return true
}

// Answered says that a command was answered.
func (d *Delay) Answered(now lease.Instant) {
	if d.answered == 0 {
		d.since = now
	}
	d.answered++
}

// End says that the commands have waited long enough.
func (d *Delay) End() { d.over = true }

// Proposed says that the n commands that waited are proposed, and learns from it.
func (d *Delay) Proposed(n int) {
	next := Delay{crowd: d.crowd, skip: max(d.skip-1, 0), failure: d.failure}
	switch {
	case !d.waited:
	case n-d.had < (d.want-d.had+1)/2:
		next.failure = min(d.failure+1, maxFailures)
		// An even number, so that of two callers that take turns the other is tried
		// next.
		next.skip = 1<<next.failure - 2
	default:
		next.failure = 0
	}
	*d = next
}
