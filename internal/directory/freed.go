package directory

import "leasehold.dev/lease"

// freeing is what acknowledgements, and the ends of leases, leave to do. Very many writes may wait
// for very many caches, so a step does no more of it than Limits.Freed; the rest has its turn in
// the next, which is at once. Until then a range is pending and a write waits, as if the
// acknowledgement had come that much later.
type freeing struct {
	// answers are the caches that have acknowledged more than was worked off, in the order in which
	// they did.
	answers []*cache
	// freed are writes, each of which has to wait for one thing less of a cache.
	freed []freed
	done  int // in this step
}

// freed are writes that wait for a cache of a lease no more.
type freed struct {
	by     lease.ID
	writes []*Write
}

// free says that writes wait for some drops of a cache no more: they go on by workOff.
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

// acked notes that invalidations up to seq are acknowledged: those that there have been.
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

// hasAnswered reports whether anything of what is pending was acknowledged, and is still to be
// worked off.
func (c *cache) hasAnswered() bool {
	return len(c.drops) > 0 && c.drops[0].seq != 0 && c.drops[0].seq <= c.answered
}

// workOff lets the writes go on that wait for something no more, as many as a step has room for.
func (d *Directory) workOff() {
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

// answer takes what was acknowledged from what a cache has, so many drops of it at most, and
// returns how many it were. Those that were joined are taken together, as they were sent: what is
// written meanwhile waits for the first of them, which stands for all that is held.
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
		d.stopped(c) // it was told to drop all, in one message
	}
	d.expect(c)
	d.unblock(c.id, renewers)
	return n
}

// unblock takes from each write one thing that it waits for.
func (d *Directory) unblock(by lease.ID, writes []*Write) {
	for _, w := range writes {
		w.blocked--
		w.last = by
		d.tryLeave(w)
	}
}

// Behind reports whether a step had no room for something that is due.
func (d *Directory) Behind() bool { return d.left || len(d.freed)+len(d.answers) > 0 }

// crowding is what keeps urgent writes from leaving all at once: what comes behind them in the log
// would wait for all.
type crowding struct {
	urgent     int      // under way
	endingKeys int      // keys of their leases, together
	crowd      []*Write // wait for one of these to have its outcome, and for nothing else, in order
}

// keysEach is how many keys the leases have on average that urgent writes end, if as many of these
// are under way as may be. Fewer are if they have more.
const keysEach = 4

// room reports whether a write may leave beside those that are under way. An urgent one that may
// not waits in the crowd, unless it has been stuck: commands that attach keys went on before it
// then, and are not to do so again and again.
func (d *Directory) room(w *Write) bool {
	if !w.Urgent || d.roomy() {
		return true
	}
	if _, was := d.stuck.Get(w.number); was {
		return true
	}
	d.crowd = append(d.crowd, w)
	return false
}

// roomy reports whether one more urgent write may leave.
func (d *Directory) roomy() bool {
	return d.urgent+d.stuck.Len() < d.limits.Ending && d.endingKeys < d.limits.Ending*keysEach
}

// thin lets those of the crowd leave for which there is room.
func (d *Directory) thin() {
	for len(d.crowd) > 0 && d.roomy() {
		w := d.crowd[0]
		d.crowd[0] = nil
		d.crowd = d.crowd[1:]
		d.tryLeave(w)
	}
}
