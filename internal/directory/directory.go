package directory

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// State is the part of the replicated state that a Directory needs.
type State interface {
	// Keys yields the keys attached to a lease, in any order.
	Keys(lease.ID) iter.Seq[string]
	// Expiry returns the earliest instant at which a lease may have ended, given every promise made
	// to its holder. If ok is false, there is no such lease.
	Expiry(lease.ID) (at lease.Instant, ok bool)
}

// Limits bounds the size of a Directory and the work done per step.
type Limits struct {
	// Spans limits the number of disjoint ranges that one cache may have, and AllSpans the total
	// for all caches. At either limit, Fill returns false.
	Spans, AllSpans int
	// Drops limits the number of ranges that are pending for a cache, and DropBytes the bytes of
	// their keys. If either is exceeded, the cache must drop everything.
	Drops, DropBytes int
	// Waiting limits the number of waiting writes. Links limits the number of links, each from a
	// write to an earlier write that it waits for. A write to a range waits for every earlier write
	// to one of its keys.
	Waiting, Links int
	// Work limits, roughly, the caches and keys that admissions examine per step: see Spent.
	Work int
	// Invalidated is an approximate limit on the number of ranges invalidated in one step. Expired
	// limits the number of caches whose expiry is processed in one step. The rest follows in the
	// next step.
	Invalidated, Expired int
	// Freed limits the number of acknowledged ranges, and of writes waiting for them, that are
	// processed in one step. Ending limits the number of urgent writes in flight, so that other
	// writes are not stuck behind them in the log. Fewer are admitted if they end leases with many
	// keys.
	Freed, Ending int
	// Slow is how long an acknowledgment may take before it counts as slow.
	Slow lease.TTL
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Spans: cmp.Or(l.Spans, 65_536), AllSpans: cmp.Or(l.AllSpans, 4_000_000),
		Drops: cmp.Or(l.Drops, 4096), DropBytes: cmp.Or(l.DropBytes, 1<<20),
		Waiting: cmp.Or(l.Waiting, 16_384), Links: cmp.Or(l.Links, 131_072),
		Work: cmp.Or(l.Work, 262_144), Slow: cmp.Or(l.Slow, 1000),
		Invalidated: cmp.Or(l.Invalidated, 8192), Expired: cmp.Or(l.Expired, 8192),
		Freed: cmp.Or(l.Freed, 1024), Ending: cmp.Or(l.Ending, 256),
	}
}

// Directory is the record of all caches that one leader keeps in one term. holds records what each
// cache may have, pending records what each cache must drop, and writes contains the writes that
// wait. Directory decides which caches a write waits for, and propagates changes among the three.
type Directory struct {
	term   uint64
	state  State
	limits Limits
	now    lease.Instant
	// work is the number of caches and keys that admissions have examined in this step. done is the
	// work that processBacklog has done in this step.
	work, done int

	holds   holds
	pending invalidations
	writes  waitingWrites
}

// New returns an empty directory for a newly elected leader.
func New(term uint64, s State, l Limits) *Directory {
	l = l.withDefaults()
	return &Directory{
		term: term, state: s, limits: l,
		holds: newHolds(), pending: newInvalidations(l), writes: newWaitingWrites(l),
	}
}

// Advance moves the clock and releases the writes whose caches have expired.
func (d *Directory) Advance(now lease.Instant) {
	d.now = now
	if len(d.writes.waiting) > 0 {
		for _, c := range d.pending.ends.until(now, d.limits.Expired) {
			if d.over(c) {
				d.pending.outlived(c, now)
				d.free(c, c.drops)
			} else {
				d.pending.checkLate(c, now)
			}
			d.expect(c)
		}
	}
	for _, c := range d.holds.orphans.until(now, d.limits.Expired) {
		d.stop(c)
	}
	d.processBacklog()
}

// Next returns an instant before which Advance has nothing to do. Renewals only ever make it later.
func (d *Directory) Next() (at lease.Instant, ok bool) {
	if d.Behind() {
		return d.now, true
	}
	at, ok = d.holds.orphans.first()
	if len(d.writes.waiting) == 0 {
		return at, ok
	}
	if end, some := d.pending.ends.first(); some && end != never && (!ok || end < at) {
		return end, true
	}
	return at, ok
}

// Recheck must be called when the expiry of leases may have changed.
func (d *Directory) Recheck() {
	for _, c := range d.pending.unacked {
		d.expect(c)
	}
}

// expect schedules when a cache may expire or become slow.
func (d *Directory) expect(c *cache) {
	at := lease.Instant(0)
	if c.waiting > 0 {
		expiry, _ := d.expiry(c)
		// Wait at least one instant, because a renewal in the log can keep an expired cache in use.
		at = max(min(expiry, d.pending.lateAt(c)), d.now+1)
	}
	d.pending.expect(c, at)
}

// expiry returns the instant from which a cache is guaranteed to be empty.
func (d *Directory) expiry(c *cache) (at lease.Instant, ok bool) {
	if c.orphan {
		return c.until, true
	}
	return d.state.Expiry(c.id)
}

// never is later than any instant of a clock.
const never = lease.Instant(math.MaxInt64)

// Hold adds a lease that holds ranges. Set wide if the lease held them before this member became
// the leader, because its cache may have anything. Otherwise the cache can be filled only once all
// commands that were admitted earlier are settled.
func (d *Directory) Hold(id lease.ID, token lease.Token, ranges []keyrange.Range, wide bool) {
	d.Release(token)
	d.holds.add(&cache{hold: hold{id: id, token: token, ranges: ranges}}, wide)
}

// Release removes the hold of the lease with the given token. Writes no longer wait for its cache.
func (d *Directory) Release(token lease.Token) {
	c := d.holds.caches[token]
	if c == nil {
		return
	}
	d.holds.remove(c)
	d.unblockRenewers(c)
	d.cancel(c)
	d.processBacklog()
}

// unblockRenewers releases the commands that renew the lease of a cache.
func (d *Directory) unblockRenewers(c *cache) { d.unblock(c.id, c.takeRenewers()) }

// Admitted counts a proposed command, whether or not it was passed to Admit. Commands are numbered
// from 1.
func (d *Directory) Admitted(w *Write) { d.holds.fences.admit(w != nil && len(w.Ends) > 0) }

// Settled records that the outcomes of all commands below a number are known.
func (d *Directory) Settled(below uint64) { d.holds.fences.settle(below) }

// Ready returns the writes that have become ready since the last call. They must be proposed in
// this order.
func (d *Directory) Ready() []*Write { return d.writes.takeReady(d.now) }

// HasReady reports whether Ready has anything to return.
func (d *Directory) HasReady() bool { return len(d.writes.ready) > 0 }

// Waiting returns the waiting writes, in order of admission.
func (d *Directory) Waiting() []*Write { return d.writes.list() }

// TakeAcknowledged returns the leases for which Pending has become false since the last call. It
// can return a lease more than once.
func (d *Directory) TakeAcknowledged() []lease.ID { return d.pending.takeRenewable() }

// Invalidations returns the invalidations to send now, ordered by token.
func (d *Directory) Invalidations() []Invalidation { return d.pending.takeDue(d.now) }

// Pending reports whether the cache of a lease has unacknowledged invalidations. If so, the lease
// must not be renewed.
func (d *Directory) Pending(id lease.ID) bool {
	c := d.holds.live[id]
	return c != nil && len(c.drops) > 0
}

// Holds reports whether a lease holds ranges.
func (d *Directory) Holds(id lease.ID) bool { return d.holds.live[id] != nil }

// Idle reports whether there is nothing that a write could wait for. If so, writes need not be
// passed to Admit.
func (d *Directory) Idle() bool {
	return len(d.holds.caches)+len(d.writes.waiting)+len(d.writes.ready) == 0 && !d.Behind()
}

func sortedByID(list []*cache) []*cache {
	slices.SortFunc(list, func(a, b *cache) int { return cmp.Compare(a.token, b.token) })
	return list
}

func sortedByNumber(list []*Write) []*Write {
	slices.SortFunc(list, func(a, b *Write) int { return cmp.Compare(a.number, b.number) })
	return list
}
