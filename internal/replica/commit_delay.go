package replica

import "leasehold.dev/lease"

// commitDelay is the commit delay of a leader's log. Commands can wait briefly for other commands
// before they are proposed, so that they share one entry and one sync.
//
// Without the delay, callers that wait for an answer before they send the next request split into
// two groups. While one group waits for its sync, the other is being answered. So each sync commits
// the commands of only half the callers, and a command that arrives just after a sync has begun
// waits for two syncs. Two callers that alternate, like the holders of a lock, take twice as long
// as necessary.
//
// A caller that has just been answered is likely to send another request soon. Any caller whose
// command is waiting when the log becomes free counts as well. The waiting commands are proposed
// once there are about as many as there are such callers. They are also proposed when the shell,
// which can measure such short times, ends the delay. If the expected commands do not arrive, some
// of the next entries are not delayed. Their number grows with each consecutive failure. A single
// caller is never delayed.
//
// The zero value delays nothing until free is called.
type commitDelay struct {
	answers int           // commands answered since the last entry was proposed
	since   lease.Instant // when the first of them was answered
	begun   bool          // the log is free, and want is set
	had     int           // number of commands that were waiting when the log became free
	want    int           // number of commands that ends the delay; 0 while the log is busy
	waited  bool          // whether commands were delayed
	over    bool          // whether end was called

	crowd   int // number of callers seen together: answered and waiting
	skip    int // number of entries that will not be delayed
	failure int // number of consecutive failures
}

const (
	// staleAfter is how long after an answer another request is still expected, in milliseconds.
	staleAfter = 5
	// maxDelayFailures bounds the number of entries without a delay to 2^maxDelayFailures-2.
	maxDelayFailures = 5
)

// free records that the log is free while n commands are waiting.
func (d *commitDelay) free(n int) {
	if d.answers == 0 || d.begun {
		return
	}
	// The crowd at the previous entry counts as well, because two alternating callers never appear
	// together. One caller in eight can be late or absent.
	crowd := n + d.answers
	want := max(crowd, d.crowd)
	d.begun, d.had, d.want, d.crowd = true, n, want-want/8, crowd
}

// holds reports whether the n waiting commands should wait for others.
func (d *commitDelay) holds(n int, now lease.Instant) bool {
	if n >= d.want || d.skip > 0 || d.over || now-d.since > staleAfter {
		return false
	}
	d.waited = true
	return true
}

// answered records that a command has been answered.
func (d *commitDelay) answered(now lease.Instant) {
	if d.answers == 0 {
		d.since = now
	}
	d.answers++
}

// end ends the delay.
func (d *commitDelay) end() { d.over = true }

// proposed records that the n waiting commands have been proposed, and adapts to the result.
func (d *commitDelay) proposed(n int) {
	next := commitDelay{crowd: d.crowd, skip: max(d.skip-1, 0), failure: d.failure}
	switch {
	case !d.waited:
	case n-d.had < (d.want-d.had+1)/2:
		next.failure = min(d.failure+1, maxDelayFailures)
		// The number is even, so that the next attempt begins with the other of two alternating
		// callers.
		next.skip = 1<<next.failure - 2
	default:
		next.failure = 0
	}
	*d = next
}
