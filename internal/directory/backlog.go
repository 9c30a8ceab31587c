package directory

import "leasehold.dev/lease"

// backlog is work caused by acknowledgments and by the ends of leases. Many writes can be waiting
// for many caches. So one step processes at most Limits.Freed items, and leaves the rest to the
// next step, which follows immediately. Until then, ranges remain pending and writes wait, as if
// the acknowledgments had arrived later.
type backlog struct {
	// answers lists the caches with unprocessed acknowledgments, in order of arrival.
	answers []*cache
	// freed lists writes that no longer wait for one of their caches.
	freed []freed
	done  int // work done in this step
}

// freed is a set of writes that no longer wait for the cache of lease by.
type freed struct {
	by     lease.ID
	writes []*Write
}

// free records that the given drops of a cache no longer block writes. processBacklog releases the
// writes.
func (d *Directory) free(c *cache, drops []*drop) {
	for _, x := range drops {
		if len(x.writes) > 0 {
			d.freed = append(d.freed, freed{c.id, x.writes})
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
		switch {
		case len(d.freed) > 0:
			f := &d.freed[0]
			n := min(len(f.writes), d.limits.Freed-d.done)
			d.done += n
			d.unblock(f.by, f.writes[:n])
			if f.writes = f.writes[n:]; len(f.writes) == 0 {
				d.freed[0] = freed{}
				d.freed = d.freed[1:]
			}
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
			d.freed, d.answers = nil, nil
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

// unblock records that each of the writes has one less drop to wait for. by is the lease of the
// cache.
func (d *Directory) unblock(by lease.ID, writes []*Write) {
	for _, w := range writes {
		w.blocked--
		w.last = by
		d.tryLeave(w)
	}
}

// Behind reports whether the last step left work that is due.
func (d *Directory) Behind() bool { return d.left || len(d.freed)+len(d.answers) > 0 }

// urgentWrites limits the urgent writes in flight, because other writes wait behind them in the
// log.
type urgentWrites struct {
	urgent     int      // number of urgent writes in flight
	endingKeys int      // number of keys attached to their leases
	crowd      []*Write // writes held back only by this limit, in order
}

// keysPerUrgent is the number of keys allowed per urgent write in flight. So Limits.Ending urgent
// writes can be in flight only if the leases that they end have at most this many keys on average.
const keysPerUrgent = 4

// room reports whether a write can leave, given the urgent writes in flight. If an urgent write
// cannot leave, it is added to crowd, unless it has been stuck. Commands that attach keys have
// already overtaken a write that has been stuck, and must not do so again.
func (d *Directory) room(w *Write) bool {
	if !w.Urgent || d.urgentRoom() {
		return true
	}
	if _, was := d.stuck.Get(w.number); was {
		return true
	}
	d.crowd = append(d.crowd, w)
	return false
}

// urgentRoom reports whether one more urgent write can leave.
func (d *Directory) urgentRoom() bool {
	return d.urgent+d.stuck.Len() < d.limits.Ending && d.endingKeys < d.limits.Ending*keysPerUrgent
}

// drainCrowd lets as many writes leave crowd as there is room for.
func (d *Directory) drainCrowd() {
	for len(d.crowd) > 0 && d.urgentRoom() {
		w := d.crowd[0]
		d.crowd[0] = nil
		d.crowd = d.crowd[1:]
		d.tryLeave(w)
	}
}
