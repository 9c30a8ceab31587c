package directory

import "leasehold.dev/lease"

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
func (v *invalidations) slow(c *cache, now lease.Instant) {
	v.slowCount++
	v.slows = append(v.slows, c.slowness(now))
}

// outlived records that a cache that writes wait for has expired.
func (v *invalidations) outlived(c *cache, now lease.Instant) {
	v.outlivedCount++
	v.slow(c, now)
}

func (c *cache) slowness(now lease.Instant) Slow {
	return Slow{c.id, c.token, lease.TTL(now - c.drops[0].since)}
}

// lateAt returns when a cache that writes are waiting for will count as slow, if it does not yet.
func (v *invalidations) lateAt(c *cache) lease.Instant {
	if c.lateSince != 0 {
		return never
	}
	return c.drops[0].since + lease.Instant(v.limits.Slow)
}

// checkLate records that a cache is slow, if writes have waited for it long enough.
func (v *invalidations) checkLate(c *cache, now lease.Instant) {
	if v.lateAt(c) <= now {
		v.setLate(c, true)
	}
}

// setLate records whether a cache is currently slow.
func (v *invalidations) setLate(c *cache, late bool) {
	since := lease.Instant(0)
	if late {
		since = c.drops[0].since + 1 // plus 1, so that it is never 0
	}
	v.lateChanged = v.lateChanged || (c.lateSince != 0) != late
	v.late.put(c, &c.lateSince, since)
}

// listLate returns the caches that are currently slow, the ones that have been slow the longest
// first, and reports whether any have changed since the last call.
func (v *invalidations) listLate(now lease.Instant) (list []Slow, changed bool) {
	v.late.entries.Scan(func(e scheduled) bool {
		list = append(list, e.c.slowness(now))
		return len(list) < lateKept
	})
	changed, v.lateChanged = v.lateChanged, false
	return list, changed
}

// takeSlow returns the caches that have stopped being slow since the last call.
func (v *invalidations) takeSlow() []Slow {
	out := v.slows
	v.slows = nil
	return out
}
