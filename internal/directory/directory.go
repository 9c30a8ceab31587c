package directory

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/tidwall/btree"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// errFull means that too many writes wait for caches.
var errFull = errors.New("directory: too many writes wait for caches")

// State is what a Directory asks of the state.
type State interface {
	// Keys yields the keys that are attached to a lease, in whatever order.
	Keys(lease.ID) iter.Seq[string]
	// Expiry returns the first instant by which a lease may have ended, whatever
	// was promised to its holder; ok=false if there is no such lease.
	Expiry(lease.ID) (at lease.Instant, ok bool)
}

// Limits bound what a Directory keeps.
type Limits struct {
	// Spans is in how many parts that which one cache has may be, and AllSpans that of
	// all caches. Beyond it nothing more may be cached.
	Spans, AllSpans int
	// Drops is how many ranges may be pending for a cache, and DropBytes how many bytes their keys may
	// have together. One with more is to drop all.
	Drops, DropBytes int
	// Waiting is how many writes may wait, and Links how many of them may wait for another
	// one, each counted as often as it does: one write to a range waits for all those to its
	// keys.
	Waiting, Links int
	// Work is about how many caches and keys are looked at in one step for writes that are
	// admitted: see Spent.
	Work int
	// Told is about how many ranges are named in the invalidations of one step, and Over how
	// many caches are looked at in one step because their time has come. The rest has its turn
	// in the next.
	Told, Over int
	// Freed is how many acknowledged ranges are worked off in one step, and writes that waited for
	// them; and Ending how many urgent writes are under way, so that others find room between them:
	// fewer if they end leases with many keys.
	Freed, Ending int
	// Slow is how late an acknowledgement is that is told of as Slow.
	Slow lease.TTL
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Spans: cmp.Or(l.Spans, 65_536), AllSpans: cmp.Or(l.AllSpans, 4_000_000),
		Drops: cmp.Or(l.Drops, 4096), DropBytes: cmp.Or(l.DropBytes, 1<<20),
		Waiting: cmp.Or(l.Waiting, 16_384), Links: cmp.Or(l.Links, 131_072),
		Work: cmp.Or(l.Work, 262_144), Slow: cmp.Or(l.Slow, 1000),
		Told: cmp.Or(l.Told, 8192), Over: cmp.Or(l.Over, 8192),
		Freed: cmp.Or(l.Freed, 1024), Ending: cmp.Or(l.Ending, 256),
	}
}

// Directory is what one leader knows of the caches, in one term.
type Directory struct {
	term   uint64
	state  State
	limits Limits
	now    lease.Instant

	holds holds
	pending
	freeing
	line
	told
}

// pending are the invalidations that caches have not acknowledged, and what is to be done about
// them when.
type pending struct {
	unacked map[lease.Token]*cache
	// gone are orphans that have nothing any more, until they are taken.
	gone btree.Map[lease.Token, *cache]
	// renewable are leases of which Pending has become false.
	renewable []lease.ID
	// unsent are caches that may have to be told something at once, and resends says when
	// those that were told, and have not answered, are told again.
	unsent  []*cache
	left    bool // there was no room for some of them in the last step
	resends agenda
	// ends says when caches that are waited for may be over, or late: not before. And
	// orphans says when those are over.
	ends, orphans agenda
}

// told is what is told to people.
type told struct {
	stats Stats
	slows []Slow
	waits []lease.TTL
	// late are the caches that are slow now, by when they began to be waited for; and lateNews
	// says that they are others than when they were asked for last.
	late     agenda
	lateNews bool
}

// New returns what the leader of a term knows at first: nothing.
func New(term uint64, s State, l Limits) *Directory {
	return &Directory{
		term: term, state: s, limits: l.withDefaults(), holds: newHolds(),
		line: line{leases: make(map[lease.ID]*under), waiting: make(map[*Write]struct{})},
		pending: pending{
			unacked: make(map[lease.Token]*cache),
			resends: newAgenda(), ends: newAgenda(), orphans: newAgenda(),
		},
		told: told{late: newAgenda()},
	}
}

// Advance moves the clock, and lets those writes go on whose caches have passed
// their expiry.
func (d *Directory) Advance(now lease.Instant) {
	d.now = now
	if len(d.waiting) > 0 {
		for _, c := range d.ends.until(now, d.limits.Over) {
			switch {
			case d.over(c):
				d.stats.Outlived++
				d.slow(c)
				d.free(c, c.drops)
			case d.lateAt(c) <= now:
				d.setLate(c, true)
			}
			d.expect(c)
		}
	}
	for _, c := range d.orphans.until(now, d.limits.Over) {
		d.stopped(c)
	}
	d.workOff()
}

// Next returns an instant before which Advance has nothing to do. Renewals make it
// only later.
func (d *Directory) Next() (at lease.Instant, ok bool) {
	if d.Behind() {
		return d.now, true
	}
	at, ok = d.orphans.first()
	if len(d.waiting) == 0 {
		return at, ok
	}
	if end, some := d.ends.first(); some && end != never && (!ok || end < at) {
		return end, true
	}
	return at, ok
}

// Recheck says that leases may live longer or shorter than they did.
func (d *Directory) Recheck() {
	for _, c := range d.unacked {
		d.expect(c)
	}
}

// expect notes when a cache is to be looked at because it may be over, or late.
func (d *Directory) expect(c *cache) {
	at := lease.Instant(0)
	if c.waiting > 0 {
		expiry, _ := d.expiry(c)
		// Not at once again: what is over by its expiry may be kept by a renewal in the log.
		at = max(min(expiry, d.lateAt(c)), d.now+1)
	}
	d.ends.put(c, &c.endsAt, at)
}

// expiry is the instant from which a cache has nothing any more, by its lease.
func (d *Directory) expiry(c *cache) (at lease.Instant, ok bool) {
	if c.orphan {
		return c.until, true
	}
	return d.state.Expiry(c.id)
}

// never is no instant of any clock.
const never = lease.Instant(math.MaxInt64)

// Hold says that a lease holds ranges: wide if it did when this member began to
// lead, and its cache may have anything of them. Otherwise nothing of them may be
// cached before all that was admitted until now is settled.
func (d *Directory) Hold(id lease.ID, token lease.Token, ranges []keyrange.Range, wide bool) {
	d.Release(token)
	d.holds.add(&cache{hold: hold{id: id, token: token, ranges: ranges}}, wide)
}

// Release says that what was held under a token is held no more. Nobody waits for its cache.
func (d *Directory) Release(token lease.Token) {
	c := d.holds.caches[token]
	if c == nil {
		return
	}
	d.gone.Delete(token)
	d.holds.remove(c)
	d.unblockRenewers(c)
	d.acknowledged(c)
	d.free(c, c.drops)
	d.expect(c)
	d.orphans.put(c, &c.overAt, 0)
	d.workOff()
}

// unblockRenewers lets the commands go on that renew the lease which a cache had.
func (d *Directory) unblockRenewers(c *cache) {
	renewers := c.renewers
	c.renewers = nil
	d.unblock(c.id, renewers)
}

// Admitted says that one more command is proposed, tracked or not: they are numbered from 1.
func (d *Directory) Admitted(w *Write) { d.holds.fences.admit(w != nil && len(w.Ends) > 0) }

// Settled says that all commands with numbers below this one have their outcome.
func (d *Directory) Settled(below uint64) { d.holds.fences.settle(below) }

// Ready returns the writes that may be proposed now, and could not before, in the
// order in which they are to be.
func (d *Directory) Ready() []*Write {
	out := d.ready
	d.ready = nil
	for _, w := range out {
		d.waited(w)
	}
	return out
}

// HasReady reports whether Ready has anything to return.
func (d *Directory) HasReady() bool { return len(d.ready) > 0 }

// Waiting returns the writes that wait, in the order in which they were admitted.
func (d *Directory) Waiting() []*Write {
	return inNumber(slices.Collect(maps.Keys(d.waiting)))
}

// acknowledged notes that a cache has no pending invalidation any more.
func (d *Directory) acknowledged(c *cache) {
	delete(d.unacked, c.token)
	d.resends.put(c, &c.resendAt, 0)
	d.renewable = append(d.renewable, c.id)
}

// TakeAcknowledged returns leases of which Pending has become false since the last call, some of
// them twice.
func (d *Directory) TakeAcknowledged() []lease.ID {
	out := d.renewable
	d.renewable = nil
	return out
}

// Pending reports whether a lease must not be renewed now: its cache has not acknowledged
// what it was told to drop.
func (d *Directory) Pending(id lease.ID) bool {
	c := d.holds.live[id]
	return c != nil && len(c.drops) > 0
}

// Holds reports whether a lease holds ranges.
func (d *Directory) Holds(id lease.ID) bool { return d.holds.live[id] != nil }

// Idle reports whether there is nothing to do for a write, whatever it touches.
func (d *Directory) Idle() bool {
	return len(d.holds.caches)+len(d.waiting)+len(d.ready) == 0 && !d.Behind()
}

func inOrder(list []*cache) []*cache {
	slices.SortFunc(list, func(a, b *cache) int { return cmp.Compare(a.token, b.token) })
	return list
}

func inNumber(list []*Write) []*Write {
	slices.SortFunc(list, func(a, b *Write) int { return cmp.Compare(a.number, b.number) })
	return list
}
