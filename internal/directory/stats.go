package directory

import "leasehold.dev/lease"

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

// Slow is a cache that takes long to acknowledge. It is told of when writes have waited for
// it for Limits.Slow, with Still, and when it has acknowledged, or its lease was over.
type Slow struct {
	ID     lease.ID
	Waited lease.TTL
	// Still says that writes wait for it now. That is told once, until it has acknowledged
	// what it is late with.
	Still bool
}

// slowKept bounds how many slow acknowledgements are told of at a time.
const slowKept = 64

func (d *Directory) slow(c *cache, still bool) {
	if !still {
		d.stats.Slow++
	}
	if len(d.slows) < slowKept {
		d.slows = append(d.slows, Slow{c.id, lease.TTL(d.now - c.drops[0].since), still})
	}
}

// lateAt returns when a cache for which writes wait is to be told of as Slow, if it was not.
func (d *Directory) lateAt(c *cache) lease.Instant {
	if c.late {
		return never
	}
	return c.drops[0].since + lease.Instant(d.limits.Slow)
}

// TakeSlow returns which caches were slow since the last call, not more than a few.
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
