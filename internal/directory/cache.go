package directory

import (
	"slices"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// cache is the record of one lease that holds ranges.
//
// Invariants: pending contains the drops, by range. A drop has a number if and only if it has been
// sent. Drops without a number come last.
type cache struct {
	hold
	// routes lists the members through which the cache has sent messages, most recent first.
	routes []uint64
	filled Origin // origin of the last Fill or Open

	drops   []*drop
	bytes   int  // total bytes of the keys of drops, unless joined is set
	joined  bool // drops have been replaced by drops for all held ranges
	pending keyrange.Tree[*drop]
	waiting int // number of writes that wait for drops
	delivery
	// renewers are commands that renew the lease and wait until nothing is pending.
	renewers []*Write
	orphanState
	// endsAt is the instant at which the cache is due in Directory.ends, or 0 if it is not listed
	// there.
	endsAt lease.Instant
}

// hold describes what a cache may contain.
type hold struct {
	id     lease.ID
	token  lease.Token
	ranges []keyrange.Range // ranges held by the lease
	// wide is true if the cache may have everything in ranges. That is assumed until the cache has
	// reported its contents in this term and confirmed that it is open.
	wide bool
	open bool  // it has reported its contents in this term
	has  spans // what it may have, if it is not wide
	// untracked is the number of the last command that was admitted before the hold was known.
	// fence is the number of the last command that must be settled before the cache may be filled.
	// See fences.
	untracked, fence uint64
}

// orphanState is the state of an orphan: see Directory.Orphan.
type orphanState struct {
	orphan bool
	ttl    lease.TTL
	until  lease.Instant // when it expires
	// stopped means that the orphan's cache is empty and remains empty.
	stopped bool
	// overAt is the instant at which the cache is due in Directory.orphans, or 0 if it is not
	// listed there.
	overAt lease.Instant
}

// delivery tracks the invalidations sent to a cache.
type delivery struct {
	seq uint64
	// answered is the number of the last acknowledged invalidation.
	answered uint64
	sent     lease.Instant // when the last invalidation was sent
	pause    lease.TTL     // delay until the next one; 0 means none
	unsent   bool          // the cache is in Directory.unsent
	// resendAt and lateSince are the instants under which Directory.resends and Directory.late list
	// the cache, or 0.
	resendAt, lateSince lease.Instant
}

// drop is a range that a cache must drop, and whose invalidation it has not acknowledged. The
// invalidation may not have been sent yet.
type drop struct {
	what   keyrange.Range
	seq    uint64 // number of the first invalidation that contained it, or 0
	since  lease.Instant
	writes []*Write // writes that wait for the acknowledgment
}

// routesKept is the maximum number of members through which an unacknowledged invalidation is
// resent.
const routesKept = 3

// addRoute records that a message from a cache came through a member.
func (d *Directory) addRoute(c *cache, member uint64) {
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

// within reports whether the lease of the cache holds all of r.
func (c *cache) within(r keyrange.Range) bool {
	return slices.ContainsFunc(c.ranges, func(h keyrange.Range) bool { return h.Covers(r) })
}

// may reports whether the cache may have a key in r. r must overlap what its lease holds.
func (c *cache) may(r keyrange.Range) bool { return c.wide || c.has.overlaps(r) }

// dropWork is the cost of adding a drop, relative to the cost of examining a cache.
const dropWork = 32

// drop returns the drop for r, adding it if necessary. If r has been sent but not acknowledged, it
// need not be sent again: its keys have been pending, so they cannot have been cached since.
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

// join replaces all drops with drops for all held ranges.
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

// clearDrops removes all drops.
func (c *cache) clearDrops() {
	c.drops, c.joined, c.bytes, c.pending = nil, false, 0, keyrange.Tree[*drop]{}
}

// Opening is a cache's report of its contents.
type Opening struct {
	ID    lease.ID
	Token lease.Token
	Has   []keyrange.Range
	From  Origin
}

// Origin identifies the member that forwarded a message. Within one incarnation of a member, later
// messages have larger numbers.
type Origin struct{ Member, Incarnation, Number uint64 }

// before reports whether o is known to have been sent no later than p.
func (o Origin) before(p Origin) bool {
	return o.Member == p.Member && o.Incarnation == p.Incarnation && o.Number <= p.Number
}

// Open records the contents of a cache. It returns false if there is no such cache, because the
// lease has ended, has another holder, or holds nothing. It accepts the cache of an orphan, so that
// everything in that cache can be invalidated.
//
// The list may be an old one that was delayed on another path. So Open only adds to the recorded
// contents, and a wide cache stays wide until it acknowledges in this term (Ack.Open).
func (d *Directory) Open(o Opening) bool {
	c := d.holds.find(o.ID, o.Token)
	if c == nil || c.stopped {
		return false
	}
	d.holds.setOpen(c, true)
	d.addRoute(c, o.From.Member)
	c.pause = 0 // send what is pending immediately
	d.send(c)
	c.filled = o.From
	d.holds.gain(c, o.Has)
	if c.has.len() > d.limits.Spans {
		d.holds.gain(c, c.ranges) // there are too many spans, so assume that it has everything
	}
	return true
}

// Fill is a cache's request for permission to keep the result of a read.
type Fill struct {
	ID     lease.ID
	Token  lease.Token
	Ranges []keyrange.Range
	From   Origin
}

// Fill records that a cache will keep the result of a read. It returns false if the cache must not
// keep it.
func (d *Directory) Fill(f Fill) bool {
	c := d.holds.find(f.ID, f.Token)
	if c == nil {
		return false
	}
	d.addRoute(c, f.From.Member)
	_, leased := d.expiry(c)
	if !leased || c.orphan || !c.open || !d.holds.fences.passed(c) || d.over(c) ||
		!d.holds.fits(c, len(f.Ranges), &d.limits) {
		return false
	}
	for _, r := range f.Ranges {
		if r.Empty() || !c.within(r) || c.pending.Hits(r) || d.writes.marks.Hits(r) {
			return false
		}
	}
	d.holds.gain(c, f.Ranges)
	c.filled = f.From
	return true
}

// Ack is a cache's acknowledgment.
type Ack struct {
	ID    lease.ID
	Token lease.Token
	// Seq is the number of an invalidation in Term whose ranges have been dropped.
	Term, Seq uint64
	// Open is the last term in which the cache received an answer to its Opening.
	Open uint64
	// Dropped lists ranges that the cache has dropped on its own initiative.
	Dropped []keyrange.Range
	From    Origin
}

// Ack processes an acknowledgment. It ignores old ones, and acknowledgments of another term.
func (d *Directory) Ack(a Ack) {
	c := d.holds.find(a.ID, a.Token)
	if c == nil {
		return
	}
	d.addRoute(c, a.From.Member)
	if a.Term == d.term {
		d.acked(c, a.Seq)
		defer d.processBacklog()
	}
	if a.Open != d.term {
		return
	}
	// The cache has received confirmation that it is open in this term, so its latest list has
	// arrived.
	d.holds.setWide(c, c.wide && !c.open)
	if !c.filled.before(a.From) {
		return // it may have been filled again in the meantime
	}
	for _, r := range a.Dropped {
		d.holds.lose(c, r)
	}
	d.look(c)
}

// over reports whether the lease of a cache has expired, so that the cache is no longer used. A
// lease whose expiry has passed can still be renewed until it is ended, but only after its cache
// has acknowledged everything. A renewal counts as soon as it is in the log. If the lease does not
// exist, it has just been revoked, and nothing changes until the cache becomes an orphan.
func (d *Directory) over(c *cache) bool {
	if !c.orphan && d.writes.renewing(c.id) {
		return false
	}
	expiry, ok := d.expiry(c)
	return ok && expiry <= d.now
}

// Invalidation is a message to a cache with the ranges that it must drop.
type Invalidation struct {
	ID    lease.ID
	Token lease.Token
	Seq   uint64
	// Drop lists everything that is pending, so lost invalidations do not matter.
	Drop []keyrange.Range
	// Members lists the members through which to send the message.
	Members []uint64
}

const (
	// windowMost is how many pending ranges each invalidation can repeat while more are being
	// added. Beyond that, the next invalidation waits until the previous one is acknowledged.
	windowMost = 64
	// resendFirst and resendLast bound the delay, in milliseconds, before an unacknowledged
	// invalidation is resent. The delay doubles each time.
	resendFirst lease.TTL = 200
	resendLast  lease.TTL = 2000
)

// send adds a cache to unsent if it has pending drops.
func (d *Directory) send(c *cache) {
	if len(c.drops) > 0 && !c.unsent {
		c.unsent = true
		d.unsent = append(d.unsent, c)
	}
}

// Invalidations returns the invalidations to send now, ordered by token.
func (d *Directory) Invalidations() []Invalidation {
	var out []Invalidation
	for _, c := range slices.Compact(sortedByID(d.dueNow())) {
		members := c.routes[:1]
		if c.pause != 0 && lease.TTL(d.now-c.sent) >= c.pause {
			members = c.routes // the previous one was not acknowledged
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

// dueNow returns the caches that get an invalidation now, within the limits of a step. The caches
// in unsent come first, in the order in which something became pending for them. Those that have
// not acknowledged for a long time come after them.
func (d *Directory) dueNow() (due []*cache) {
	ranges, n := 0, 0
	for ; n < len(d.unsent) && ranges < d.limits.Invalidated; n++ {
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
	for _, c := range d.resends.until(d.now, d.limits.Invalidated-ranges) {
		if ranges < d.limits.Invalidated {
			due = append(due, c)
			ranges += len(c.drops)
		}
	}
	return due
}

// due reports whether a cache in unsent gets an invalidation now: if it has a drop that has not
// been sent, or if its pause is over.
func (d *Directory) due(c *cache) bool {
	if len(c.routes) == 0 {
		return false // there is no route to the cache until it opens again
	}
	return c.drops[0].seq == 0 || lease.TTL(d.now-c.sent) >= c.pause || len(c.drops) <= windowMost
}
