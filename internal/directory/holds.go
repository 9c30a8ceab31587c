package directory

import (
	"github.com/tidwall/btree"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// holds indexes the caches by the ranges of their leases, and counts the ranges that they may have.
//
// Invariants: live contains the caches that are not orphans. held finds each cache by each of its
// ranges, and has no empty list. spans is the sum of the caches' spans, and wide and open count the
// caches with that flag.
type holds struct {
	caches            map[lease.Token]*cache
	live              map[lease.ID]*cache
	held              keyrange.Tree[*holders]
	spans, wide, open int
	fences            fences
}

// holders are the caches that hold a range, by token.
type holders = btree.Map[lease.Token, *cache]

func newHolds() holds {
	return holds{
		caches: make(map[lease.Token]*cache), live: make(map[lease.ID]*cache),
		fences: fences{settled: 1},
	}
}

// add adds a cache. It is wide if it may have everything its lease holds. Otherwise it may not be
// filled before all commands that were admitted so far are settled.
func (h *holds) add(c *cache, wide bool) {
	h.caches[c.token], h.live[c.id] = c, c
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
		list.Set(c.token, c) // a range may occur twice
	}
}

// remove removes a cache.
func (h *holds) remove(c *cache) {
	delete(h.caches, c.token)
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

// unlink separates a cache from its lease, which continues without it or has ended.
func (h *holds) unlink(c *cache) {
	if h.live[c.id] == c {
		delete(h.live, c.id)
	}
}

// find returns the cache of a lease and token, or nil.
func (h *holds) find(id lease.ID, token lease.Token) *cache {
	if c := h.caches[token]; c != nil && c.id == id {
		return c
	}
	return nil
}

func (h *holds) setWide(c *cache, wide bool) { set(&c.wide, wide, &h.wide) }
func (h *holds) setOpen(c *cache, open bool) { set(&c.open, open, &h.open) }

// set sets a flag and updates the count of set flags.
func set(flag *bool, to bool, count *int) {
	switch {
	case to && !*flag:
		*count++
	case !to && *flag:
		*count--
	}
	*flag = to
}

// gain records that a cache may have ranges.
func (h *holds) gain(c *cache, list []keyrange.Range) {
	before := c.has.len()
	for _, r := range list {
		c.has.add(r)
	}
	h.spans += c.has.len() - before
}

// lose records that a cache has no key of a range.
func (h *holds) lose(c *cache, r keyrange.Range) {
	before := c.has.len()
	c.has.remove(r)
	h.spans += c.has.len() - before
}

// loseAll records that a cache has nothing.
func (h *holds) loseAll(c *cache) {
	h.setWide(c, false)
	h.spans -= c.has.len()
	c.has.clear()
}

// fits reports whether a cache may have this many more ranges.
func (h *holds) fits(c *cache, ranges int, l *Limits) bool {
	return c.has.len()+ranges <= l.Spans && h.spans+ranges <= l.AllSpans
}

// fences protect a new cache from commands that were admitted before its hold was known, and so did
// not wait for it. The cache may not be filled before the last of these commands is settled. One of
// them may attach keys to a lease that a later command ends. The later command deletes these keys,
// although they were not attached when it was admitted. So the cache then also waits for the last
// command that ends leases.
//
// Commands are numbered from 1 in the order of their admission.
type fences struct {
	// All commands below settled have their outcome. admitted is the number of the last command,
	// and ending is the number of the last command that ends leases.
	settled, admitted, ending uint64
	waiting                   []*cache // by untracked
}

func (f *fences) begin(c *cache) {
	c.untracked, c.fence = f.admitted, f.admitted
	if f.admitted >= f.settled {
		f.waiting = append(f.waiting, c)
	}
}

// admit numbers a command.
func (f *fences) admit(ends bool) {
	f.admitted++
	if ends {
		f.ending = f.admitted
	}
}

// settle records that all commands below a number have their outcome.
func (f *fences) settle(below uint64) {
	f.settled = max(f.settled, below)
	n := 0
	for ; n < len(f.waiting) && f.waiting[n].untracked < f.settled; n++ {
		f.waiting[n].fence = f.ending
		f.waiting[n] = nil // for the garbage collector
	}
	if f.waiting = f.waiting[n:]; len(f.waiting) == 0 {
		f.waiting = nil
	}
}

// passed reports whether the fences allow a cache to be filled.
func (f *fences) passed(c *cache) bool { return c.fence < f.settled }
