package directory

import "leasehold.dev/lease"

// The backlog is work caused by acknowledgments and by the ends of leases. Many writes can be
// waiting for many caches. So one step processes at most Limits.Freed items, and leaves the rest to
// the next step, which follows immediately. Until then, ranges remain pending and writes wait, as
// if the acknowledgments had arrived later.

// free records that the given drops of a cache no longer block writes. processBacklog releases the
// writes.
func (d *Directory) free(c *cache, drops []*drop) {
	for _, x := range drops {
		if len(x.writes) > 0 {
			d.writes.free(c.id, x.writes)
		}
		c.waiting -= len(x.writes)
		x.writes = nil
	}
	if c.waiting == 0 {
		d.setLate(c, false)
	}
}

// acked records an acknowledgment of all invalidations up to seq.
func (d *Directory) acked(c *cache, seq uint64) {
	before := c.hasAnswered()
	if c.answered = max(c.answered, min(seq, c.seq)); before || !c.hasAnswered() {
		return
	}
	if lease.TTL(d.now-c.drops[0].since) > d.limits.Slow {
		d.slow(c)
	}
	d.answers = append(d.answers, c)
}

// hasAnswered reports whether the cache has an unprocessed acknowledgment.
func (c *cache) hasAnswered() bool {
	return len(c.drops) > 0 && c.drops[0].seq != 0 && c.drops[0].seq <= c.answered
}

// processBacklog processes the backlog within the limit of a step.
func (d *Directory) processBacklog() {
	for d.done < d.limits.Freed {
		by, writes := d.writes.takeFreed(d.limits.Freed - d.done)
		switch {
		case len(writes) > 0:
			d.done += len(writes)
			d.unblock(by, writes)
		case len(d.answers) > 0:
			c := d.answers[0]
			if d.holds.caches[c.token] == c && c.hasAnswered() {
				d.done += d.answer(c, d.limits.Freed-d.done)
			}
			if d.holds.caches[c.token] != c || !c.hasAnswered() {
				d.answers[0] = nil
				d.answers = d.answers[1:]
			}
		default:
			d.answers = nil
			return
		}
	}
}

// answer removes acknowledged drops of a cache, no more than most, and returns how many it removed.
// Joined drops are removed together, just as they were sent. Writes wait only for the first of
// them, which stands for all held ranges.
func (d *Directory) answer(c *cache, most int) (n int) {
	for n < len(c.drops) && (n < most || c.joined) &&
		c.drops[n].seq != 0 && c.drops[n].seq <= c.answered {
		n++
	}
	done := c.drops[:n:n]
	c.drops = c.drops[n:]
	for _, x := range done {
		d.holds.lose(c, x.what)
		c.pending.Remove(x.what)
		c.bytes -= bytesOf(x.what)
	}
	d.free(c, done)
	d.setLate(c, c.lateSince != 0 && lease.TTL(d.now-c.drops[0].since) >= d.limits.Slow)
	var renewers []*Write
	switch {
	case len(c.drops) == 0:
		renewers, c.renewers = c.renewers, nil
		c.clearDrops()
		c.pause = 0
		d.acknowledged(c)
	case !c.hasAnswered():
		c.pause = 0
		d.send(c)
	}
	if c.orphan {
		d.stopped(c) // a single invalidation covered everything
	}
	d.expect(c)
	d.unblock(c.id, renewers)
	return n
}

// Behind reports whether the last step left work that is due.
func (d *Directory) Behind() bool {
	return d.left || len(d.writes.freed)+len(d.answers) > 0
}
