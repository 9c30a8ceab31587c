package directory

import (
	"slices"

	"github.com/tidwall/btree"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// holds indexes the caches by the ranges of their leases, and records what each cache may have.
//
// Invariants: live contains the caches that are not orphans. held finds each cache by each of its
// ranges, and contains no empty list. spans is the total number of spans of all caches. wide and
// open count the caches with that flag. orphans contains the orphans that have not stopped, and
// gone only orphans that have. A stopped orphan is empty.
type holds struct {
	caches            map[lease.Token]*cache
	live              map[lease.ID]*cache
	held              keyrange.Tree[*holders]
	spans, wide, open int
	fences            fences
	// orphans schedules the expiry of orphans. gone contains the orphans whose caches are empty,
	// until TakeStopped returns them.
	orphans schedule
	gone    btree.Map[lease.Token, *cache]
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
	orphanState
}

// orphanState is the state of an orphan: see Directory.Orphan.
type orphanState struct {
	orphan bool
	ttl    lease.TTL
	until  lease.Instant // when it expires
	// stopped means that the orphan's cache is empty and remains empty.
	stopped bool
	// overAt is the instant at which the cache is due in holds.orphans, or 0 if it is not listed
	// there.
	overAt lease.Instant
}

// within reports whether the lease of the cache holds all of r.
func (c *cache) within(r keyrange.Range) bool {
	return slices.ContainsFunc(c.ranges, func(h keyrange.Range) bool { return h.Covers(r) })
}

// may reports whether the cache may have a key in r. r must overlap what its lease holds.
func (c *cache) may(r keyrange.Range) bool { return c.wide || c.has.overlaps(r) }

// holders maps tokens to the caches that hold a range.
type holders = btree.Map[lease.Token, *cache]

func newHolds() holds {
	return holds{
		caches: make(map[lease.Token]*cache), live: make(map[lease.ID]*cache),
		fences: fences{settled: 1}, orphans: newSchedule(),
	}
}

// add adds a cache. If it is wide, it may have everything its lease holds. Otherwise it cannot be
// filled until all commands admitted so far are settled.
func (h *holds) add(c *cache, wide bool) {
	h.caches[c.token] = c
	if !c.orphan {
		h.live[c.id] = c
	}
	h.setWide(c, wide)
	if !wide {
		h.fences.begin(c)
	}
	for _, r := range c.ranges {
		list, ok := h.held.Get(r)
		if !ok {
			list = new(holders)
			h.held.Put(r, list)
		}
		list.Set(c.token, c) // the same range can occur twice
	}
}

// remove removes a cache.
func (h *holds) remove(c *cache) {
	delete(h.caches, c.token)
	h.gone.Delete(c.token)
	h.orphans.put(c, &c.overAt, 0)
	h.unlink(c)
	h.setWide(c, false)
	h.setOpen(c, false)
	h.spans -= c.has.len()
	for _, r := range c.ranges {
		list, ok := h.held.Get(r)
		if !ok {
			continue
		}
		list.Delete(c.token)
		if list.Len() == 0 {
			h.held.Remove(r)
		}
	}
}

// unlink separates a cache from its lease, which continues without the cache or has ended.
func (h *holds) unlink(c *cache) {
	if h.live[c.id] == c {
		delete(h.live, c.id)
	}
}

// find returns the cache of the lease with the given ID and token, or nil.
func (h *holds) find(id lease.ID, token lease.Token) *cache {
	if c := h.caches[token]; c != nil && c.id == id {
		return c
	}
	return nil
}

func (h *holds) setWide(c *cache, wide bool) { set(&c.wide, wide, &h.wide) }
func (h *holds) setOpen(c *cache, open bool) { set(&c.open, open, &h.open) }

// set sets a flag and updates the number of set flags.
func set(flag *bool, to bool, count *int) {
	switch {
	case to && !*flag:
		*count++
	case !to && *flag:
		*count--
	}
	*flag = to
}

// gain records that a cache may have the given ranges.
func (h *holds) gain(c *cache, list []keyrange.Range) {
	before := c.has.len()
	for _, r := range list {
		c.has.add(r)
	}
	h.spans += c.has.len() - before
}

// lose records that a cache has no keys in a range.
func (h *holds) lose(c *cache, r keyrange.Range) {
	before := c.has.len()
	c.has.remove(r)
	h.spans += c.has.len() - before
}

// fits reports whether a cache may have this many additional ranges.
func (h *holds) fits(c *cache, ranges int, l *Limits) bool {
	return c.has.len()+ranges <= l.Spans && h.spans+ranges <= l.AllSpans
}

// fences protect a new cache from commands that were admitted before its hold was known, and so did
// not wait for it. The cache must not be filled until the last of these commands is settled. One of
// them may attach keys to a lease that a later command ends. The later command deletes these keys,
// although they were not attached when it was admitted. So the cache must also wait for the last
// such command that ends leases.
//
// Commands are numbered from 1 in order of admission.
type fences struct {
	// The outcomes of all commands below settled are known. admitted is the number of the last
	// command, and ending is the number of the last command that ends leases.
	settled, admitted, ending uint64
	waiting                   []*cache // ordered by untracked
}

func (f *fences) begin(c *cache) {
	c.untracked, c.fence = f.admitted, f.admitted
	if f.admitted >= f.settled {
		f.waiting = append(f.waiting, c)
	}
}

// admit assigns a number to a command.
func (f *fences) admit(ends bool) {
	f.admitted++
	if ends {
		f.ending = f.admitted
	}
}

// settle records that the outcomes of all commands below a number are known.
func (f *fences) settle(below uint64) {
	f.settled = max(f.settled, below)
	n := 0
	for ; n < len(f.waiting) && f.waiting[n].untracked < f.settled; n++ {
		f.waiting[n].fence = f.ending
		f.waiting[n] = nil // let the garbage collector free it
	}
	if f.waiting = f.waiting[n:]; len(f.waiting) == 0 {
		f.waiting = nil
	}
}

// passed reports whether the fences allow a cache to be filled.
func (f *fences) passed(c *cache) bool { return c.fence < f.settled }
