package replica

import "leasehold.dev/lease"

// gathering decides whether commands wait a moment for others before they are
// proposed, so that all share one entry and one sync.
//
// Without it, callers who each wait for their answer before they ask again form two
// cohorts: while one waits for its sync, the other is answered, so each sync serves
// half of them, and who comes just after a sync has begun waits for two. Two callers
// who take turns, as the holders of a lock that goes from hand to hand, take twice
// the time that they need.
//
// As many as were answered and wait when the log is free are likely to be there soon
// again. So what waits then goes on once nearly as many have come, or when the shell,
// which alone measures such short times, says that it was long enough (Hurry). If they
// do not come, nobody is waited for at the next entries: at more of them after each such
// disappointment in a row. A caller who is alone is never held up.
//
// It is off without Config.Gather, as begin is not called then.
type gathering struct {
	answered int           // proposals answered since the last entry was proposed
	since    lease.Instant // when the first of them was
	begun    bool          // the log is free, and want is set
	had      int           // commands that waited when it became so
	want     int           // how many make it worth while to go on
	waited   bool          // somebody was waited for
	hurry    bool          // it was long enough

	crowd   int // callers seen at once: those answered and those who waited
	skip    int // for how many entries nobody is waited for
	failure int // disappointments in a row
}

const (
	// stale is how long after the answers (in milliseconds) nobody is expected to come
	// back any more.
	stale = 5
	// maxFailures bounds for how long gathering is given up: for 2^maxFailures-2 entries.
	maxFailures = 5
)

// begin notes that the log is free while n commands wait.
func (g *gathering) begin(n int) {
	if g.answered == 0 || g.begun {
		return
	}
	// The crowd of the entry before counts as well: two who take turns are never seen
	// at once. One in eight may stay away or be late.
	crowd := n + g.answered
	want := max(crowd, g.crowd)
	g.begun, g.had, g.want, g.crowd = true, n, want-want/8, crowd
}

// holds reports whether the n commands that wait are to wait for others.
func (g *gathering) holds(n int, now lease.Instant) bool {
	if !g.begun || n >= g.want || g.skip > 0 || g.hurry || now-g.since > stale {
		return false
	}
	g.waited = true
	return true
}

// heard notes that a proposal was answered.
func (g *gathering) heard(now lease.Instant) {
	if g.answered == 0 {
		g.since = now
	}
	g.answered++
}

// proposed notes that the n commands that waited are proposed, and learns from it.
func (g *gathering) proposed(n int) {
	next := gathering{crowd: g.crowd, skip: max(g.skip-1, 0), failure: g.failure}
	switch {
	case !g.waited:
	case n-g.had < (g.want-g.had+1)/2:
		next.failure = min(g.failure+1, maxFailures)
		// An even number, so that of two who take turns the other is tried next.
		next.skip = 1<<next.failure - 2
	default:
		next.failure = 0
	}
	*g = next
}

// Held reports whether commands wait for others to come, and for nothing else. The
// shell then calls Hurry, after about the time that a sync or two take.
func (r *Replica) Held() bool {
	return len(r.waiting) > 0 && r.appending == 0 &&
		r.gathering.holds(len(r.waiting), r.now)
}

// Hurry says that commands have waited long enough for others.
func (r *Replica) Hurry() { r.gathering.hurry = true }
