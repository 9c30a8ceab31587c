package directory

import (
	"leasehold.dev/lease"
)

// Stats contains statistics for metrics.
type Stats struct {
	// Caches is the number of caches. Wide is the number of caches that may have everything in the
	// ranges that their leases hold. Open is the number of caches that have reported their contents
	// in this term.
	Caches, Wide, Open int
	// Spans is the total number of disjoint ranges that the caches may have.
	Spans int
	// Unacknowledged is the number of caches with unacknowledged invalidations.
	Unacknowledged int
	// Waiting is the number of writes that are waiting. Waited is the number of writes that have
	// waited. Outlived is how often a write had to wait for a cache to expire.
	Waiting          int
	Waited, Outlived uint64
	// Sent is the number of invalidations. Slow is the number of slow acknowledgments.
	Sent, Slow uint64
}

// Stats returns the current statistics.
func (d *Directory) Stats() Stats {
	h, v, q := &d.holds, &d.pending, &d.writes
	return Stats{
		Caches: len(h.caches), Wide: h.wide, Open: h.open, Spans: h.spans,
		Unacknowledged: len(v.unacked), Waiting: len(q.waiting), Waited: q.count,
		Outlived: v.outlivedCount, Sent: v.sentCount, Slow: v.slowCount,
	}
}

// Late returns the caches that are currently slow: writes have been waiting for them for at least
// Limits.Slow, and they have not caught up. It returns at most 256 caches, the ones that have been
// slow the longest, and reports whether any have changed since the last call.
func (d *Directory) Late() (list []Slow, changed bool) { return d.pending.listLate(d.now) }

// LateChanged reports whether the slow caches have changed since the last call to Late.
func (d *Directory) LateChanged() bool { return d.pending.lateChanged }

// AnyLate reports whether any cache is currently slow.
func (d *Directory) AnyLate() bool { return d.pending.late.entries.Len() > 0 }

// TakeSlow returns the caches that have stopped being slow since the last call. A cache is listed
// once for each time that it was slow.
func (d *Directory) TakeSlow() []Slow { return d.pending.takeSlow() }

// TakeWaits returns the wait times of the writes that Ready has returned since the last call.
func (d *Directory) TakeWaits() []lease.TTL { return d.writes.takeWaits() }
