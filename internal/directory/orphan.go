package directory

import (
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// An Orphan is a hold that has outlived its lease: that was revoked, or got another holder.
type Orphan struct {
	ID     lease.ID
	Token  lease.Token
	Ranges []keyrange.Range
	// TTL is the lease's, and Until when its time is over.
	TTL   lease.TTL
	Until lease.Instant
}

// Orphan says that a hold is an orphan, wide if it was when this member began to lead. Its
// cache is told to drop everything, and gets nothing new. Writes wait for it until it has
// acknowledged that, or its time is over: nobody renews it. Then it is among those that
// TakeStopped returns.
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
	d.orphans.put(c, &c.overAt, c.until)
	if d.look(c); !c.stopped && !c.joined {
		d.unacked[c.token] = c
		c.join(d.now)
		d.send(c)
	}
	d.expect(c)
	d.workOff()
}

// Refresh gives every orphan its full TTL from now on, since the clock is not to be trusted to
// have measured the time before.
func (d *Directory) Refresh(now lease.Instant) {
	for _, c := range d.holds.caches {
		if c.orphan && !c.stopped {
			c.until = now + lease.Instant(c.ttl) + 1
			d.orphans.put(c, &c.overAt, c.until)
			d.expect(c)
		}
	}
}

// look notes whether an orphan has nothing any more.
func (d *Directory) look(c *cache) {
	if c.orphan && !c.wide && c.has.len() == 0 {
		d.stopped(c)
	}
}

// stopped notes that an orphan has nothing any more. That stays so, since it gets nothing.
func (d *Directory) stopped(c *cache) {
	if c.stopped {
		return
	}
	c.stopped = true
	d.holds.loseAll(c)
	d.orphans.put(c, &c.overAt, 0)
	d.gone.Set(c.token, c)
	drops := c.drops
	c.clearDrops()
	d.acknowledged(c)
	d.free(c, drops)
	d.expect(c)
}

// TakeStopped returns, once, orphans that have nothing any more, by their tokens and not more
// than most: nobody waits for them, and they may be dropped, which Release tells.
func (d *Directory) TakeStopped(most int) []lease.Token {
	list := make([]lease.Token, 0, min(most, d.gone.Len()))
	for len(list) < cap(list) {
		token, _, _ := d.gone.PopMin()
		list = append(list, token)
	}
	return list
}

// NotDropped says that orphans which TakeStopped returned are not dropped.
func (d *Directory) NotDropped(tokens []lease.Token) {
	for _, token := range tokens {
		if c := d.holds.caches[token]; c != nil {
			d.gone.Set(token, c)
		}
	}
}
