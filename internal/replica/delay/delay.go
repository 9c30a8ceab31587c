// Package delay implements the commit delay. Commands can wait briefly for other commands before
// they are proposed, so that they share one entry and one sync.
//
// Without the delay, callers that wait for an answer before they send the next request split into
// two groups. While one group waits for its sync, the other is being answered. So each sync commits
// the commands of only half the callers, and a command that arrives just after a sync has begun
// waits for two syncs. Two callers that alternate, like the holders of a lock, take twice as long
// as necessary.
//
// A caller that has just been answered is likely to send another request soon. Any caller whose
// command is waiting when the log becomes free counts as well. The waiting commands are proposed
// once there are about as many as there are such callers. They are also proposed when the owner of
// the Delay, which can measure such short times, calls End. If the expected commands do not arrive,
// some of the next entries are not delayed. Their number grows with each consecutive failure. A
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
	had      int           // number of commands that were waiting when the log became free
	want     int           // number of commands that ends the delay; 0 while the log is busy
	waited   bool          // whether commands were delayed
	over     bool          // whether End was called

	crowd   int // number of callers seen together: answered and waiting
	skip    int // number of entries that will not be delayed
	failure int // number of consecutive failures
}

const (
	// stale is how long after an answer another request is still expected, in milliseconds.
	stale = 5
	// maxFailures bounds the number of entries without a delay to 2^maxFailures-2.
	maxFailures = 5
)

// Free informs the Delay that the log is free while n commands are waiting.
func (d *Delay) Free(n int) {
	if d.answered == 0 || d.begun {
		return
	}
	// The crowd at the previous entry counts as well, because two alternating callers never appear
	// together. One caller in eight can be late or absent.
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

// Answered records that a command has been answered.
func (d *Delay) Answered(now lease.Instant) {
	if d.answered == 0 {
		d.since = now
	}
	d.answered++
}

// End ends the delay.
func (d *Delay) End() { d.over = true }

// Proposed records that the n waiting commands have been proposed, and adapts to the result.
func (d *Delay) Proposed(n int) {
	next := Delay{crowd: d.crowd, skip: max(d.skip-1, 0), failure: d.failure}
	switch {
	case !d.waited:
	case n-d.had < (d.want-d.had+1)/2:
		next.failure = min(d.failure+1, maxFailures)
		// The number is even, so that the next attempt begins with the other of two alternating
		// callers.
		next.skip = 1<<next.failure - 2
	default:
		next.failure = 0
	}
	*d = next
}
