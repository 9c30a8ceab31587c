package directory

import (
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// An Orphan is a hold that outlived its lease, because the lease was revoked or transferred to
// another holder.
type Orphan struct {
	ID     lease.ID
	Token  lease.Token
	Ranges []keyrange.Range
	// TTL is the TTL of the lease, and Until is when it would have expired.
	TTL   lease.TTL
	Until lease.Instant
}

// Orphan turns a hold into an orphan. wide means that it was already an orphan before this member
// became the leader. Everything in its cache is invalidated, and the cache can no longer be filled.
// Writes wait for it until the cache has acknowledged the invalidations, or until it expires, since
// it cannot be renewed. After that, TakeStopped returns it.
func (d *Directory) Orphan(o Orphan, wide bool) {
	c := d.holds.find(o.ID, o.Token)
	switch {
	case c == nil:
		d.Release(o.Token)
		c = &cache{hold: hold{
			id: o.ID, token: o.Token, ranges: o.Ranges, orphanState: orphanState{orphan: true},
		}}
		d.holds.add(c, wide)
	case c.orphan:
		return
	}
	d.holds.orphan(c, o.TTL, o.Until)
	d.unblockRenewers(c)
	if d.stopIfEmpty(c); !c.stopped {
		d.pending.dropAll(c, d.now)
	}
	d.expect(c)
	d.processBacklog()
}

// Refresh restarts the full TTL of every orphan. It is called when the clock may not have measured
// the time that passed before the call.
func (d *Directory) Refresh(now lease.Instant) {
	for _, c := range d.holds.caches {
		if c.orphan && !c.stopped {
			d.holds.setUntil(c, now+lease.Instant(c.ttl)+1)
			d.expect(c)
		}
	}
}

// stopIfEmpty stops an orphan whose cache is empty.
func (d *Directory) stopIfEmpty(c *cache) {
	if c.orphan && !c.wide && c.has.len() == 0 {
		d.stop(c)
	}
}

// stop records that an orphan's cache is empty, so that no write waits for it.
func (d *Directory) stop(c *cache) {
	if d.holds.stop(c) {
		d.cancel(c)
	}
}

// TakeStopped returns the tokens of orphans whose caches are empty. It returns no more than most
// tokens, and each only once. No write waits for them. The caller removes them from the state and
// then calls Release.
func (d *Directory) TakeStopped(most int) []lease.Token { return d.holds.takeStopped(most) }

// NotDropped puts back orphans that TakeStopped returned but the caller could not remove.
func (d *Directory) NotDropped(tokens []lease.Token) { d.holds.putBack(tokens) }

// orphan turns a cache into an orphan, which expires at the instant until.
func (h *holds) orphan(c *cache, ttl lease.TTL, until lease.Instant) {
	c.orphan, c.ttl = true, ttl
	h.unlink(c)
	h.setUntil(c, until)
}

// setUntil sets the instant at which an orphan expires.
func (h *holds) setUntil(c *cache, until lease.Instant) {
	c.until = until
	h.orphans.put(c, &c.overAt, until)
}

// stop records that an orphan's cache is empty. This is final, because the cache can no longer be
// filled. It returns false if the orphan has already stopped.
func (h *holds) stop(c *cache) bool {
	if c.stopped {
		return false
	}
	c.stopped = true
	h.setWide(c, false)
	h.spans -= c.has.len()
	c.has.clear()
	h.orphans.put(c, &c.overAt, 0)
	h.gone.Set(c.token, c)
	return true
}

// takeStopped removes tokens from gone and returns them, no more than most.
func (h *holds) takeStopped(most int) []lease.Token {
	list := make([]lease.Token, 0, min(most, h.gone.Len()))
	for len(list) < cap(list) {
		token, _, _ := h.gone.PopMin()
		list = append(list, token)
	}
	return list
}

// putBack puts orphans that still exist back into gone.
func (h *holds) putBack(tokens []lease.Token) {
	for _, token := range tokens {
		if c := h.caches[token]; c != nil {
			h.gone.Set(token, c)
		}
	}
}
