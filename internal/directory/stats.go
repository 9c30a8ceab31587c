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
	s := d.stats
	s.Caches, s.Wide, s.Open, s.Spans = len(d.holds.caches), d.holds.wide, d.holds.open, d.holds.spans
	s.Unacknowledged, s.Waiting, s.Waited = len(d.unacked), len(d.writes.waiting), d.writes.count
	return s
}

// Slow is a cache that is, or was, slow to acknowledge an invalidation.
type Slow struct {
	ID    lease.ID
	Token lease.Token
	// Waited is how long writes have waited for the cache.
	Waited lease.TTL
}

// lateKept caps the list that Late returns.
const lateKept = 256

// slow records a slow cache once it has acknowledged or expired.
func (d *Directory) slow(c *cache) {
	d.stats.Slow++
	d.slows = append(d.slows, d.slowness(c))
}

func (d *Directory) slowness(c *cache) Slow {
	return Slow{c.id, c.token, lease.TTL(d.now - c.drops[0].since)}
}

// lateAt returns when a cache that writes are waiting for will count as slow, if it does not yet.
func (d *Directory) lateAt(c *cache) lease.Instant {
	if c.lateSince != 0 {
		return never
	}
	return c.drops[0].since + lease.Instant(d.limits.Slow)
}

// setLate records whether a cache is currently slow.
func (d *Directory) setLate(c *cache, late bool) {
	since := lease.Instant(0)
	if late {
		since = c.drops[0].since + 1 // plus 1, so that it is never 0
	}
	d.lateChanged = d.lateChanged || (c.lateSince != 0) != late
	d.late.put(c, &c.lateSince, since)
}

// Late returns the caches that are currently slow: writes have been waiting for them for at least
// Limits.Slow, and they have not caught up. It returns at most 256 caches, the ones that have been
// slow the longest, and reports whether any have changed since the last call.
func (d *Directory) Late() (list []Slow, changed bool) {
	d.late.entries.Scan(func(e scheduled) bool {
		list = append(list, d.slowness(e.c))
		return len(list) < lateKept
	})
	changed, d.lateChanged = d.lateChanged, false
	return list, changed
}

// LateChanged reports whether the slow caches have changed since the last call to Late.
func (d *Directory) LateChanged() bool { return d.lateChanged }

// AnyLate reports whether any cache is currently slow.
func (d *Directory) AnyLate() bool { return d.late.entries.Len() > 0 }

// TakeSlow returns the caches that have stopped being slow since the last call. A cache is listed
// once for each time that it was slow.
func (d *Directory) TakeSlow() []Slow {
	out := d.slows
	d.slows = nil
	return out
}

// TakeWaits returns the wait times of the writes that Ready has returned since the last call.
func (d *Directory) TakeWaits() []lease.TTL { return d.writes.takeWaits() }
