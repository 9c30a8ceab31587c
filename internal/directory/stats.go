package directory

import (
	"cmp"
	"slices"

	"leasehold.dev/lease"
)

// Stats are numbers for people.
type Stats struct {
	// Caches hold something; Wide of them are taken to have all that they hold, and Open
	// ones have told what they have.
	Caches, Wide, Open int
	// Spans is in how many parts that is which all caches have.
	Spans int
	// Owing caches have not acknowledged all that they were told to drop.
	Owing int
	// Waiting writes wait for caches now; Waited have, and Outlived caches were waited
	// for until their leases had passed their expiry.
	Waiting          int
	Waited, Outlived uint64
	// Sent invalidations, and acknowledgements that were Slow.
	Sent, Slow uint64
}

// Stats returns the numbers as they are now. It costs a look at every cache.
func (d *Directory) Stats() Stats {
	s := d.stats
	s.Caches, s.Spans, s.Owing, s.Waiting = len(d.caches), d.spans, len(d.owing), len(d.waiting)
	for _, c := range d.caches {
		if c.wide {
			s.Wide++
		}
		if c.open {
			s.Open++
		}
	}
	return s
}

// Slow is a cache that takes, or took, long to acknowledge what it was told to drop.
type Slow struct {
	ID    lease.ID
	Token lease.Token
	// Waited is for how long.
	Waited lease.TTL
}

// lateKept bounds how many caches are named that are slow now.
const lateKept = 256

// slow notes that a cache was slow, now that it has acknowledged or its lease is over.
func (d *Directory) slow(c *cache) {
	d.stats.Slow++
	d.slows = append(d.slows, d.slowness(c))
}

func (d *Directory) slowness(c *cache) Slow {
	return Slow{c.id, c.token, lease.TTL(d.now - c.drops[0].since)}
}

// lateAt returns when a cache for which writes wait becomes slow, if it is not.
func (d *Directory) lateAt(c *cache) lease.Instant {
	if d.late[c.token] == c {
		return never
	}
	return c.drops[0].since + lease.Instant(d.limits.Slow)
}

// setLate notes whether a cache is slow now.
func (d *Directory) setLate(c *cache, late bool) {
	switch was := d.late[c.token] == c; {
	case was == late:
		return
	case late:
		d.late[c.token] = c
	default:
		delete(d.late, c.token)
	}
	d.lateNews = true
}

// Late returns which caches are slow now: writes have waited for them for Limits.Slow, and they
// have not caught up since. It names no more than 256, those that have been slow for longest;
// news says whether they are others than at the last call.
func (d *Directory) Late() (list []Slow, news bool) {
	for _, c := range d.late {
		list = append(list, d.slowness(c))
	}
	slices.SortFunc(list, func(a, b Slow) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.ID, b.ID))
	})
	news, d.lateNews = d.lateNews, false
	return list[:min(len(list), lateKept)], news
}

// LateNews reports whether other caches are slow than when Late was called last.
func (d *Directory) LateNews() bool { return d.lateNews }

// AnyLate reports whether any cache is slow now.
func (d *Directory) AnyLate() bool { return len(d.late) > 0 }

// TakeSlow returns which caches were slow, and are not or with something else, since the last
// call: all of them, so that they can be counted.
func (d *Directory) TakeSlow() []Slow {
	out := d.slows
	d.slows = nil
	return out
}

// waited notes how long a write has waited.
func (d *Directory) waited(w *Write) {
	d.stats.Waited++
	d.waits = append(d.waits, lease.TTL(d.now-w.since))
}

// TakeWaits returns for how long those writes had to wait that were Ready since the
// last call.
func (d *Directory) TakeWaits() []lease.TTL {
	out := d.waits
	d.waits = nil
	return out
}
