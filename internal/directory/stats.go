package directory

import (
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

// Stats returns the numbers as they are now.
func (d *Directory) Stats() Stats {
	s := d.stats
	s.Caches, s.Wide, s.Open, s.Spans = len(d.holds.caches), d.holds.wide, d.holds.open, d.holds.spans
	s.Owing, s.Waiting = len(d.unacked), len(d.waiting)
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
	if c.lateSince != 0 {
		return never
	}
	return c.drops[0].since + lease.Instant(d.limits.Slow)
}

// setLate notes whether a cache is slow now, and since when it is waited for.
func (d *Directory) setLate(c *cache, late bool) {
	since := lease.Instant(0)
	if late {
		since = c.drops[0].since + 1 // never 0
	}
	d.lateNews = d.lateNews || (c.lateSince != 0) != late
	d.late.put(c, &c.lateSince, since)
}

// Late returns which caches are slow now: writes have waited for them for Limits.Slow, and they
// have not caught up since. It names no more than 256, those that have been slow for longest;
// news says whether they are others than at the last call.
func (d *Directory) Late() (list []Slow, news bool) {
	d.late.entries.Scan(func(e appointment) bool {
		list = append(list, d.slowness(e.c))
		return len(list) < lateKept
	})
	news, d.lateNews = d.lateNews, false
	return list, news
}

// LateNews reports whether other caches are slow than when Late was called last.
func (d *Directory) LateNews() bool { return d.lateNews }

// AnyLate reports whether any cache is slow now.
func (d *Directory) AnyLate() bool { return d.late.entries.Len() > 0 }

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
	d.waits = append(d.waits, w.Waited())
}

// Waited returns for how long a write has waited that is Ready now.
func (w *Write) Waited() lease.TTL { return lease.TTL(w.of.now - w.since) }

// Drops returns how many drops of caches a write has waited for, one for each of its ranges that a
// cache may have had; and the lease of the cache that was the last, 0 if there was none.
func (w *Write) Drops() (count int, last lease.ID) { return w.drops, w.last }

// TakeWaits returns for how long those writes had to wait that were Ready since the
// last call.
func (d *Directory) TakeWaits() []lease.TTL {
	out := d.waits
	d.waits = nil
	return out
}
