package directory

import (
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// cache is the record of one lease that holds ranges. Only holds changes the embedded hold, and
// only invalidations changes the embedded delivery.
type cache struct {
	hold
	delivery
	filled Origin // origin of the last Fill or Open
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
	d.pending.addRoute(c, o.From.Member)
	d.pending.sendNow(c)
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
	d.pending.addRoute(c, f.From.Member)
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
	d.pending.addRoute(c, a.From.Member)
	if a.Term == d.term {
		d.pending.acked(c, a.Seq, d.now)
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
	d.stopIfEmpty(c)
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
