// Package delay implements the commit delay: commands may wait briefly for others before they are
// proposed, so that they share one entry and one sync.
//
// Without it, callers that wait for an answer before the next request form two groups. While one
// group waits for its sync, the other is answered. Then each sync commits the commands of only half
// of the callers, and a command that arrives just after a sync has begun waits for two. Two callers
// that alternate, like the holders of a lock, take twice as long as necessary.
//
// Callers that have just been answered, or that wait when the log becomes free, are likely to make
// another request soon. So waiting commands proceed once nearly as many have arrived, or when the
// owner of the Delay, which can measure such short times, calls End. If the others do not arrive,
// some of the next entries are not delayed; their number grows with each consecutive failure. A
// single caller is never delayed.
//
// The package is pure: instants are arguments.
package delay

import "leasehold.dev/lease"

// Delay is the commit delay of one log. The zero value delays nothing until Free is called.
type Delay struct {
	answered int           // commands answered since the last entry was proposed
	since    lease.Instant // when the first of them was answered
	begun    bool          // the log is free, and want is set
	had      int           // commands that waited when it became free
	want     int           // commands with which to proceed; 0 while the log is busy
	waited   bool          // the commands were delayed
	over     bool          // End was called

	crowd   int // callers seen at once: those answered and those waiting
	skip    int // entries that will not be delayed
	failure int // consecutive failures
}

const (
	// stale is the time after the answers, in milliseconds, when callers are no longer expected.
	stale = 5
	// maxFailures bounds the entries without a delay: to 2^maxFailures-2.
	maxFailures = 5
)

// Free reports to the Delay that the log is free while n commands wait.
func (d *Delay) Free(n int) {
	if d.answered == 0 || d.begun {
		return
	}
	// The crowd at the previous entry counts as well: two callers that alternate are never seen at
	// once. One caller in eight may be late or absent.
	crowd := n + d.answered
	want := max(crowd, d.crowd)
	d.begun, d.had, d.want, d.crowd = true, n, want-want/8, crowd
}

// Holds reports whether the n waiting commands should wait for others.
func (d *Delay) Holds(n int, now lease.Instant) bool {
	if n >= d.want || d.skip > 0 || d.over || now-d.since > stale {
		return false
	}
	d.waited = true
	return true
}

// Answered records that a command was answered.
func (d *Delay) Answered(now lease.Instant) {
	if d.answered == 0 {
		d.since = now
	}
	d.answered++
}

// End ends the delay.
func (d *Delay) End() { d.over = true }

// Proposed records that the n waiting commands were proposed, and learns from the result.
func (d *Delay) Proposed(n int) {
	next := Delay{crowd: d.crowd, skip: max(d.skip-1, 0), failure: d.failure}
	switch {
	case !d.waited:
	case n-d.had < (d.want-d.had+1)/2:
		next.failure = min(d.failure+1, maxFailures)
		// An even number, so that with two alternating callers the other one is tried next.
		next.skip = 1<<next.failure - 2
	default:
		next.failure = 0
	}
	*d = next
}
