package directory

import (
	"slices"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// invalidations tracks the ranges that caches must drop and have not acknowledged dropping, the
// writes that wait for that, and when to send invalidations again. The caller decides which caches
// must drop which ranges, and when a lease expires.
//
// Invariants: unacked contains the caches with drops. Such a cache is in unsent or in resends if
// there is a route to it. unsent contains no cache twice. Each cache that writes wait for is in
// ends, and no other. late contains the caches that are slow, which are among them. The drops of a
// joined cache cover everything that its lease holds, and are sent and acknowledged together.
type invalidations struct {
	limits  Limits
	unacked map[lease.Token]*cache
	// unsent lists the caches that may need an invalidation immediately. resends schedules the
	// caches that have not acknowledged the last one.
	unsent  []*cache
	left    bool // the last step hit its limit before it got through unsent
	resends schedule
	// answers lists the caches with unprocessed acknowledgments, in order of arrival.
	answers []*cache
	// renewable lists the leases for which Pending has become false.
	renewable []lease.ID
	// ends schedules the caches that writes wait for. Each is scheduled no later than when it
	// expires or becomes slow.
	ends schedule
	// late contains the caches that are currently slow, ordered by when writes began to wait for
	// them. lateChanged reports whether they have changed since the last call to listLate.
	late        schedule
	lateChanged bool
	slows       []Slow // caches that have stopped being slow, since the last call to takeSlow

	sentCount, slowCount, outlivedCount uint64 // see Stats
}

func newInvalidations(l Limits) invalidations {
	return invalidations{
		limits: l, unacked: make(map[lease.Token]*cache),
		resends: newSchedule(), ends: newSchedule(), late: newSchedule(),
	}
}

// delivery is the state of a cache's invalidations.
//
// Invariants: pending contains the drops, by range. A drop has a number if and only if it has been
// sent. Drops without a number come last.
type delivery struct {
	// routes lists the members through which the cache has sent messages, most recent first.
	routes []uint64

	drops   []*drop
	bytes   int  // total bytes of the keys of drops, unless joined is set
	joined  bool // drops have been replaced by drops for all held ranges
	pending keyrange.Tree[*drop]
	waiting int // number of writes that wait for drops
	// renewers are commands that renew the lease and wait until nothing is pending.
	renewers []*Write

	seq uint64
	// answered is the number of the last acknowledged invalidation.
	answered uint64
	sent     lease.Instant // when the last invalidation was sent
	pause    lease.TTL     // delay until the next one; 0 means none
	unsent   bool          // the cache is in invalidations.unsent
	// resendAt, endsAt and lateSince are the instants under which invalidations.resends, ends and
	// late list the cache, or 0.
	resendAt, endsAt, lateSince lease.Instant
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
func (v *invalidations) addRoute(c *cache, member uint64) {
	if len(c.routes) > 0 && c.routes[0] == member {
		return
	}
	if len(c.routes) == 0 {
		v.send(c)
	}
	c.routes = slices.DeleteFunc(c.routes, func(m uint64) bool { return m == member })
	c.routes = slices.Insert(c.routes, 0, member)
	c.routes = c.routes[:min(len(c.routes), routesKept)]
}

// drop returns the drop for r, and reports whether it is new. If r has been sent but not
// acknowledged, it need not be sent again: its keys have been pending, so they cannot have been
// cached since.
func (v *invalidations) drop(c *cache, r keyrange.Range, now lease.Instant) (x *drop, added bool) {
	if c.joined {
		return c.drops[0], false
	}
	if x, ok := c.pending.Get(r); ok {
		return x, false
	}
	x = &drop{what: r, since: now}
	c.drops = append(c.drops, x)
	c.bytes += bytesOf(r)
	c.pending.Put(r, x)
	v.unacked[c.token] = c
	v.send(c)
	if len(c.drops) > v.limits.Drops || c.bytes > v.limits.DropBytes {
		c.join(now)
		return c.drops[0], true
	}
	return x, true
}

// dropAll makes a cache drop everything.
func (v *invalidations) dropAll(c *cache, now lease.Instant) {
	if c.joined {
		return
	}
	v.unacked[c.token] = c
	c.join(now)
	v.send(c)
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
func (c *delivery) clearDrops() {
	c.drops, c.joined, c.bytes, c.pending = nil, false, 0, keyrange.Tree[*drop]{}
}

// wait makes a write wait for a drop of a cache. The caller then calls expect.
func (v *invalidations) wait(w *Write, c *cache, x *drop) {
	x.writes = append(x.writes, w)
	c.waiting++
	w.block()
}

// waitForAll makes a write wait until nothing is pending for a cache, if anything is.
func (v *invalidations) waitForAll(w *Write, c *cache) {
	if len(c.drops) > 0 {
		c.renewers = append(c.renewers, w)
		w.block()
	}
}

// takeWrites returns the writes that wait for a drop of a cache, which then no longer do.
func (v *invalidations) takeWrites(c *cache, x *drop) (writes []*Write) {
	writes, x.writes = x.writes, nil
	if c.waiting -= len(writes); c.waiting == 0 {
		v.setLate(c, false)
	}
	return writes
}

// takeRenewers returns the writes that wait until nothing is pending for a cache.
func (c *delivery) takeRenewers() (writes []*Write) {
	writes, c.renewers = c.renewers, nil
	return writes
}

// expect schedules when a cache that writes wait for must be checked, or no check if at is 0.
func (v *invalidations) expect(c *cache, at lease.Instant) { v.ends.put(c, &c.endsAt, at) }

// acked records an acknowledgment of all invalidations up to seq.
func (v *invalidations) acked(c *cache, seq uint64, now lease.Instant) {
	before := c.hasAnswered()
	if c.answered = max(c.answered, min(seq, c.seq)); before || !c.hasAnswered() {
		return
	}
	if lease.TTL(now-c.drops[0].since) > v.limits.Slow {
		v.slow(c, now)
	}
	v.answers = append(v.answers, c)
}

// hasAnswered reports whether the cache has an unprocessed acknowledgment.
func (c *delivery) hasAnswered() bool {
	return len(c.drops) > 0 && c.drops[0].seq != 0 && c.drops[0].seq <= c.answered
}

// nextAnswered returns the first cache with an unprocessed acknowledgment, or nil.
func (v *invalidations) nextAnswered() *cache {
	for len(v.answers) > 0 {
		if c := v.answers[0]; c.hasAnswered() {
			return c
		}
		v.popAnswer()
	}
	v.answers = nil
	return nil
}

func (v *invalidations) popAnswer() {
	v.answers[0] = nil
	v.answers = v.answers[1:]
}

// takeAnswered removes and returns acknowledged drops of the cache that nextAnswered has returned,
// no more than most. Joined drops are removed together, just as they were sent. Writes wait only
// for the first of them, which stands for all held ranges. The caller passes the drops to
// takeWrites.
func (v *invalidations) takeAnswered(c *cache, most int, now lease.Instant) (done []*drop) {
	n := 0
	for n < len(c.drops) && (n < most || c.joined) &&
		c.drops[n].seq != 0 && c.drops[n].seq <= c.answered {
		n++
	}
	done, c.drops = c.drops[:n:n], c.drops[n:]
	for _, x := range done {
		c.pending.Remove(x.what)
		c.bytes -= bytesOf(x.what)
	}
	if !c.hasAnswered() {
		v.popAnswer()
		v.sendNow(c)
	}
	if len(c.drops) == 0 {
		v.cancel(c)
	} else {
		late := c.lateSince != 0 && lease.TTL(now-c.drops[0].since) >= v.limits.Slow
		v.setLate(c, late)
	}
	return done
}

// cancel removes and returns the drops of a cache. Its lease can be renewed.
func (v *invalidations) cancel(c *cache) (drops []*drop) {
	drops = c.drops
	c.clearDrops()
	delete(v.unacked, c.token)
	v.resends.put(c, &c.resendAt, 0)
	v.renewable = append(v.renewable, c.id)
	return drops
}

// takeRenewable returns the leases whose caches have been passed to cancel since the last call.
func (v *invalidations) takeRenewable() []lease.ID {
	out := v.renewable
	v.renewable = nil
	return out
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
func (v *invalidations) send(c *cache) {
	if len(c.drops) > 0 && !c.unsent {
		c.unsent = true
		v.unsent = append(v.unsent, c)
	}
}

// sendNow sends a cache's pending invalidations immediately.
func (v *invalidations) sendNow(c *cache) {
	c.pause = 0
	v.send(c)
}

// takeDue returns the invalidations to send now, ordered by token.
func (v *invalidations) takeDue(now lease.Instant) (out []Invalidation) {
	for _, c := range slices.Compact(sortedByID(v.dueNow(now))) {
		members := c.routes[:1]
		if c.pause != 0 && lease.TTL(now-c.sent) >= c.pause {
			members = c.routes // the previous one was not acknowledged
		}
		c.seq++
		c.sent, c.pause = now, min(max(2*c.pause, resendFirst), resendLast)
		v.resends.put(c, &c.resendAt, c.sent+lease.Instant(c.pause))
		n := Invalidation{ID: c.id, Token: c.token, Seq: c.seq, Members: slices.Clone(members)}
		for _, x := range c.drops {
			if x.seq == 0 {
				x.seq = c.seq
			}
			n.Drop = append(n.Drop, x.what)
		}
		v.sentCount++
		out = append(out, n)
	}
	return out
}

// dueNow returns the caches that get an invalidation now, within the limits of a step. The caches
// in unsent come first, in the order in which something became pending for them. Those that have
// not acknowledged for a long time come after them.
func (v *invalidations) dueNow(now lease.Instant) (due []*cache) {
	ranges, n := 0, 0
	for ; n < len(v.unsent) && ranges < v.limits.Invalidated; n++ {
		c := v.unsent[n]
		if c.unsent = false; c.due(now) {
			due = append(due, c)
			ranges += len(c.drops)
		}
	}
	v.unsent = v.unsent[n:]
	if v.left = len(v.unsent) > 0; !v.left {
		v.unsent = nil
	}
	for _, c := range v.resends.until(now, v.limits.Invalidated-ranges) {
		if ranges < v.limits.Invalidated {
			due = append(due, c)
			ranges += len(c.drops)
		}
	}
	return due
}

// due reports whether a cache in unsent gets an invalidation now: if it has a drop that has not
// been sent, or if its pause is over.
func (c *delivery) due(now lease.Instant) bool {
	if len(c.drops) == 0 || len(c.routes) == 0 {
		return false // nothing is pending, or there is no route to the cache until it opens again
	}
	return c.drops[0].seq == 0 || lease.TTL(now-c.sent) >= c.pause || len(c.drops) <= windowMost
}

// behind reports whether the last step left work that is due.
func (v *invalidations) behind() bool { return v.left || len(v.answers) > 0 }
