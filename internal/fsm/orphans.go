package fsm

import (
	"iter"
	"maps"
	"slices"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Orphan is a hold that outlived its lease, because the lease was revoked or transferred to another
// holder. The last holder's cache may still answer from memory until it has been notified, or until
// its lease would have expired. So writes must wait for the orphan (C1) until the leader knows that
// the cache is empty (DropOrphans). Nothing else has to wait: the lease, its name and its keys are
// gone immediately.
type Orphan struct {
	// Lease is the lease as it was for the last holder.
	Lease  lease.Info
	Ranges []keyrange.Range
	// Until is the expiry of the lease according to this member's timer, or 0 if this member did
	// not time the lease. No promise to the holder extends beyond it. It is not part of the
	// replicated state.
	Until lease.Instant
}

// DropOrphans drops orphans whose caches are empty, either because the caches have acknowledged all
// invalidations or because the orphans have expired. An empty cache stays empty under any leader,
// since nothing renews an orphan. Unlike Expire, this command therefore needs no fence.
type DropOrphans struct{ Tokens []lease.Token }

func (*DropOrphans) kind() kind { return kindDropOrphans }

// orphan turns the holds of a lease that lost its holder early into an orphan. l is the lease
// before the change, and until is its expiry according to this member's timer.
func (h *holdings) orphan(l *lease.Info, until lease.Instant) {
	ranges := h.of[l.ID]
	if len(ranges) == 0 {
		return
	}
	h.set(l, nil)
	h.change(l, len(ranges))
	o := Orphan{Lease: *l, Ranges: ranges, Until: until}
	h.bytes += holdSize(&l.Terms, ranges)
	h.orphans[l.Token] = o
}

func (m *Machine) applyDropOrphans(c *DropOrphans) Result {
	h := &m.holds
	for _, token := range c.Tokens {
		if o, ok := h.orphans[token]; ok {
			h.change(&o.Lease, -len(o.Ranges))
			h.bytes -= holdSize(&o.Lease.Terms, o.Ranges)
			delete(h.orphans, token)
		}
	}
	return Result{}
}

// orphanOf returns the orphan left by the lease with this token.
func (h Holds) orphanOf(token lease.Token) (o Orphan, ok bool) {
	o, ok = h.orphans[token]
	return o, ok
}

// Orphans yields every orphan, in token order.
func (h Holds) Orphans() iter.Seq[Orphan] {
	return func(yield func(Orphan) bool) {
		for _, token := range slices.Sorted(maps.Keys(h.orphans)) {
			if !yield(h.orphans[token]) {
				return
			}
		}
	}
}

// Orphan returns the current orphan left by the lease with this token. Like Holds, it is not safe
// for concurrent use.
func (m *Machine) Orphan(token lease.Token) (Orphan, bool) { return m.holds.orphanOf(token) }

func appendOrphan(b []byte, o Orphan) []byte {
	return encoding.AppendList(appendInfo(b, &o.Lease), o.Ranges, appendHeld)
}

// restore decodes a hold or an orphan in a snapshot. The counts are computed later.
func (h *holdings) restore(tag byte, d *decoder) {
	if h.of == nil {
		h.Holds = h.copied()
	}
	if tag == tagHolds {
		held := d.heldBy()
		if len(held.Ranges) == 0 || h.of[held.Lease] != nil {
			d.Fail("holds of a lease")
		}
		h.of[held.Lease] = held.Ranges
		return
	}
	o := d.orphan()
	if len(o.Ranges) == 0 || h.orphans[o.Lease.Token].Ranges != nil {
		d.Fail("orphan")
	}
	h.orphans[o.Lease.Token] = o
}

func (d *decoder) orphan() Orphan { return Orphan{Lease: d.info(), Ranges: d.ranges()} }
