package directory

import (
	"slices"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// cache is what is known of one lease that holds ranges.
//
// Invariants: pending has the drops, by what they name; a drop has a number if and only if it
// was sent, and those that have none come last.
type cache struct {
	hold
	// routes are the members through which it was heard, the last one first.
	routes []uint64
	filled Origin // of the last registration

	drops   []*drop
	bytes   int  // of the keys of drops, unless they were joined
	joined  bool // drops name all that is held
	pending keyrange.Tree[*drop]
	waiting int // how many writes wait for drops
	sending
	// renewers are commands that renew the lease, and wait until nothing is pending.
	renewers []*Write
	orphanage
	// endsAt is where it stands in Directory.ends, 0 if it does not.
	endsAt lease.Instant
}

// hold is what a cache may have.
type hold struct {
	id     lease.ID
	token  lease.Token
	ranges []keyrange.Range // of the lease
	// wide says that it may have all of them, because it has not told in this term what it has, or
	// not yet that this was its last word.
	wide bool
	open bool  // it has told what it has, in this term
	has  spans // what it may have, besides
	// untracked is the number of the last command that was admitted before the hold was known here,
	// and fence the number of the last one that must be settled before anything may be cached: see
	// fences.
	untracked, fence uint64
}

// orphanage is what concerns an orphan: see Directory.Orphan.
type orphanage struct {
	orphan bool
	ttl    lease.TTL
	until  lease.Instant // when its time is over
	// stopped says that it has nothing any more.
	stopped bool
	// overAt is where it stands in Directory.orphans, 0 if it does not.
	overAt lease.Instant
}

// sending is how a cache is told what is pending.
type sending struct {
	seq uint64
	// answered is the number of the last invalidation that is acknowledged.
	answered uint64
	sent     lease.Instant // when the last invalidation was
	pause    lease.TTL     // from then to the next; 0: it is told at once
	unsent   bool          // it is among Directory.unsent
	// resendAt is where it stands in Directory.resends, and lateSince where in Directory.late,
	// 0 if it does not.
	resendAt, lateSince lease.Instant
}

// drop is a range that a cache was told to drop, or is about to be, and has not
// acknowledged.
type drop struct {
	what   keyrange.Range
	seq    uint64 // of the first invalidation that named it, 0 if none has
	since  lease.Instant
	writes []*Write // who waits
}

// routesKept is how many members are tried with an invalidation that is not
// acknowledged.
const routesKept = 3

// heard notes through which member a cache was heard.
func (d *Directory) heard(c *cache, member uint64) {
	if len(c.routes) > 0 && c.routes[0] == member {
		return
	}
	if len(c.routes) == 0 {
		d.send(c)
	}
	c.routes = slices.DeleteFunc(c.routes, func(m uint64) bool { return m == member })
	c.routes = slices.Insert(c.routes, 0, member)
	c.routes = c.routes[:min(len(c.routes), routesKept)]
}

// within reports whether the cache's lease holds all of r.
func (c *cache) within(r keyrange.Range) bool {
	return slices.ContainsFunc(c.ranges, func(h keyrange.Range) bool { return h.Covers(r) })
}

// may reports whether the cache may have anything of r, which overlaps what it holds.
func (c *cache) may(r keyrange.Range) bool { return c.wide || c.has.overlaps(r) }

// dropWork is how many looks at a cache it costs, about, to note something that it has to drop.
const dropWork = 32

// drop returns what the acknowledgement is waited for by which r is dropped. A range
// that is named and not acknowledged is not named again: nothing of it can have been
// cached since, because nothing that is pending is.
func (d *Directory) drop(c *cache, r keyrange.Range) *drop {
	if c.joined {
		return c.drops[0]
	}
	if x, ok := c.pending.Get(r); ok {
		return x
	}
	d.work += dropWork
	x := &drop{what: r, since: d.now}
	c.drops = append(c.drops, x)
	c.bytes += bytesOf(r)
	c.pending.Put(r, x)
	d.unacked[c.token] = c
	d.send(c)
	if len(c.drops) > d.limits.Drops || c.bytes > d.limits.DropBytes {
		c.join(d.now)
		return c.drops[0]
	}
	return x
}

func bytesOf(r keyrange.Range) int { return len(r.Key) + len(r.End) }

// join makes one of many drops: everything is to be dropped.
func (c *cache) join(now lease.Instant) {
	var writes []*Write
	for _, x := range c.drops {
		now = min(now, x.since)
		writes = append(writes, x.writes...)
	}
	c.clearDrops()
	c.joined = true
	for _, h := range c.ranges {
		if _, twice := c.pending.Get(h); twice {
			continue
		}
		x := &drop{what: h, since: now}
		c.drops = append(c.drops, x)
		c.pending.Put(h, x)
	}
	c.drops[0].writes = writes
}

// clearDrops forgets what is pending.
func (c *cache) clearDrops() {
	c.drops, c.joined, c.bytes, c.pending = nil, false, 0, keyrange.Tree[*drop]{}
}

// Opening says what a cache has, and where it is.
type Opening struct {
	ID    lease.ID
	Token lease.Token
	Has   []keyrange.Range
	From  Origin
}

// Origin says through which member something came, and when: of what came from one
// incarnation of one member, a higher number was sent later.
type Origin struct{ Member, Incarnation, Number uint64 }

// before reports whether it is certain that o was sent before p, or is the same.
func (o Origin) before(p Origin) bool {
	return o.Member == p.Member && o.Incarnation == p.Incarnation && o.Number <= p.Number
}

// Open notes what a cache has. It reports false if there is no such cache: the lease
// is gone, or has another holder, or holds nothing. That of an orphan is taken, so that it
// can be told to drop everything.
//
// The list may be an old one, which came late by another way. So what is known is only
// added to, and a wide cache stays so until it acknowledges in this term (Ack.Open).
func (d *Directory) Open(o Opening) bool {
	c := d.holds.find(o.ID, o.Token)
	if c == nil || c.stopped {
		return false
	}
	d.holds.setOpen(c, true)
	d.heard(c, o.From.Member)
	c.pause = 0 // what is pending, it is told here at once
	d.send(c)
	c.filled = o.From
	d.holds.gain(c, o.Has)
	if c.has.len() > d.limits.Spans {
		d.holds.gain(c, c.ranges) // it is in too many parts, and taken to have all that it holds
	}
	return true
}

// Fill is what a cache is going to have.
type Fill struct {
	ID     lease.ID
	Token  lease.Token
	Ranges []keyrange.Range
	From   Origin
}

// Fill notes that a cache is going to have what is read from now on, and reports
// whether it may.
func (d *Directory) Fill(f Fill) bool {
	c := d.holds.find(f.ID, f.Token)
	if c == nil {
		return false
	}
	d.heard(c, f.From.Member)
	_, leased := d.expiry(c)
	if !leased || c.orphan || !c.open || !d.holds.fences.passed(c) || d.over(c) ||
		!d.holds.fits(c, len(f.Ranges), &d.limits) {
		return false
	}
	for _, r := range f.Ranges {
		if r.Empty() || !c.within(r) || c.pending.Hits(r) || d.marks.Hits(r) {
			return false
		}
	}
	d.holds.gain(c, f.Ranges)
	c.filled = f.From
	return true
}

// Ack says what a cache has dropped.
type Ack struct {
	ID    lease.ID
	Token lease.Token
	// Seq is the number of an invalidation of Term: what it named is dropped.
	Term, Seq uint64
	// Open is the term in which the cache knows that it is open.
	Open uint64
	// Dropped is what it has given up by itself.
	Dropped []keyrange.Range
	From    Origin
}

// Ack takes an acknowledgement. An old one, or one of another term, does nothing.
func (d *Directory) Ack(a Ack) {
	c := d.holds.find(a.ID, a.Token)
	if c == nil {
		return
	}
	d.heard(c, a.From.Member)
	if a.Term == d.term {
		d.acked(c, a.Seq)
		defer d.workOff()
	}
	if a.Open != d.term {
		return
	}
	// It knows that it is open, so its last list is among those that came here.
	d.holds.setWide(c, c.wide && !c.open)
	if !c.filled.before(a.From) {
		return // it may have read again what it gave up
	}
	for _, r := range a.Dropped {
		d.holds.lose(c, r)
	}
	d.look(c)
}

// over reports whether the lease of a cache has passed its expiry, so that nothing in
// it is used. It may be renewed all the same, at the last moment: then it has to
// acknowledge first. A renewal that is in the log already counts as done. A lease that is not
// there has just been revoked: the cache may have all that it had until it becomes an orphan.
func (d *Directory) over(c *cache) bool {
	if !c.orphan && d.leases[c.id].some().renewing > 0 {
		return false
	}
	expiry, ok := d.expiry(c)
	return ok && expiry <= d.now
}

// Invalidation is what a cache has to drop.
type Invalidation struct {
	ID    lease.ID
	Token lease.Token
	Seq   uint64
	// Drop is all that is pending, so that it does not matter whether it has got the
	// invalidations before.
	Drop []keyrange.Range
	// Members are those through which to tell it.
	Members []uint64
}

// Bounds of the sending.
const (
	// windowMost is how many ranges may be named again and again, while more come.
	// Beyond it the next invalidation waits for the answer to the one before.
	windowMost = 64
	// resendFirst and resendLast bound how long after an invalidation without an answer
	// the next is sent, in milliseconds; the time doubles.
	resendFirst lease.TTL = 200
	resendLast  lease.TTL = 2000
)

// send notes that a cache may have to be told something at once.
func (d *Directory) send(c *cache) {
	if len(c.drops) > 0 && !c.unsent {
		c.unsent = true
		d.unsent = append(d.unsent, c)
	}
}

// Invalidations returns what is to be sent now, in the order of the tokens.
func (d *Directory) Invalidations() []Invalidation {
	var out []Invalidation
	for _, c := range slices.Compact(inOrder(d.toldNow())) {
		members := c.routes[:1]
		if c.pause != 0 && lease.TTL(d.now-c.sent) >= c.pause {
			members = c.routes // it was not answered
		}
		c.seq++
		c.sent, c.pause = d.now, min(max(2*c.pause, resendFirst), resendLast)
		d.resends.put(c, &c.resendAt, c.sent+lease.Instant(c.pause))
		n := Invalidation{ID: c.id, Token: c.token, Seq: c.seq, Members: slices.Clone(members)}
		for _, x := range c.drops {
			if x.seq == 0 {
				x.seq = c.seq
			}
			n.Drop = append(n.Drop, x.what)
		}
		d.stats.Sent++
		out = append(out, n)
	}
	return out
}

// toldNow returns the caches that are told now, as many as a step has room for: those to be
// told at once, in the order in which something became pending for them, and then those that have
// not answered for long.
func (d *Directory) toldNow() (due []*cache) {
	ranges, n := 0, 0
	for ; n < len(d.unsent) && ranges < d.limits.Told; n++ {
		c := d.unsent[n]
		if c.unsent = false; d.unacked[c.token] == c && d.due(c) {
			due = append(due, c)
			ranges += len(c.drops)
		}
	}
	d.unsent = d.unsent[n:]
	if d.left = len(d.unsent) > 0; !d.left {
		d.unsent = nil
	}
	for _, c := range d.resends.until(d.now, d.limits.Told-ranges) {
		if ranges < d.limits.Told {
			due = append(due, c)
			ranges += len(c.drops)
		}
	}
	return due
}

// due reports whether a cache that is among Directory.unsent is told now: something that it was not
// told is pending, or its pause was ended.
func (d *Directory) due(c *cache) bool {
	if len(c.routes) == 0 {
		return false // nobody knows where it is: it will open anew
	}
	return c.drops[0].seq == 0 || lease.TTL(d.now-c.sent) >= c.pause || len(c.drops) <= windowMost
}
