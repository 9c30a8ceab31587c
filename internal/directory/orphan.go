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
		live := d.holds.live[o.ID]
		d.Hold(o.ID, o.Token, o.Ranges, wide)
		c = d.holds.caches[o.Token]
		if live != nil {
			d.holds.live[o.ID] = live
		}
	case c.orphan:
		return
	}
	c.orphan, c.ttl, c.until = true, o.TTL, o.Until
	d.holds.unlink(c)
	d.unblockRenewers(c)
	d.holds.orphans.put(c, &c.overAt, c.until)
	if d.look(c); !c.stopped {
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
			c.until = now + lease.Instant(c.ttl) + 1
			d.holds.orphans.put(c, &c.overAt, c.until)
			d.expect(c)
		}
	}
}

// look stops an orphan whose cache is empty.
func (d *Directory) look(c *cache) {
	if c.orphan && !c.wide && c.has.len() == 0 {
		d.stopped(c)
	}
}

// stopped records that an orphan's cache is empty. This is final, because the cache can no longer
// be filled.
func (d *Directory) stopped(c *cache) {
	if c.stopped {
		return
	}
	c.stopped = true
	d.holds.loseAll(c)
	d.holds.orphans.put(c, &c.overAt, 0)
	d.holds.gone.Set(c.token, c)
	d.free(c, d.pending.cancel(c))
	d.expect(c)
}

// TakeStopped returns the tokens of orphans whose caches are empty. It returns no more than most
// tokens, and each only once. No write waits for them. The caller removes them from the state and
// then calls Release.
func (d *Directory) TakeStopped(most int) []lease.Token {
	list := make([]lease.Token, 0, min(most, d.holds.gone.Len()))
	for len(list) < cap(list) {
		token, _, _ := d.holds.gone.PopMin()
		list = append(list, token)
	}
	return list
}

// NotDropped puts back orphans that TakeStopped returned but the caller could not remove.
func (d *Directory) NotDropped(tokens []lease.Token) {
	for _, token := range tokens {
		if c := d.holds.caches[token]; c != nil {
			d.holds.gone.Set(token, c)
		}
	}
}
