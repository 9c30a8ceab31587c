package fsm

import (
	"iter"
	"maps"
	"slices"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Orphan is a hold that outlived its lease: the lease was revoked, or has another holder. The last
// holder's cache may answer from memory until it has been notified, or until its lease would have
// ended. So writes still wait for it (C1), until the leader knows that the cache is empty
// (DropOrphans). Nothing else waits: the lease, its name and its keys are gone at once.
type Orphan struct {
	// Lease is the lease of the last holder.
	Lease  lease.Info
	Ranges []keyrange.Range
	// Until is the expiry of the lease by this member's timer, or 0 if there was none: the holder
	// was promised no more. It is not part of the replicated state.
	Until lease.Instant
}

// DropOrphans drops orphans with empty caches: the caches have acknowledged all invalidations, or
// the orphans' time has passed. That stays true under any leader, since nothing renews an orphan.
// So unlike Expire it needs no fence.
type DropOrphans struct{ Tokens []lease.Token }

func (*DropOrphans) kind() kind { return kindDropOrphans }

// orphan turns the holds of a lease that lost its holder early into an orphan. l and until are the
// lease and its expiry by this member's timer before that.
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

// orphanOf returns the orphan of the lease that had this token.
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

// Orphan returns the current orphan of the lease that had this token. Like Holds it is not safe for
// concurrent use.
func (m *Machine) Orphan(token lease.Token) (Orphan, bool) { return m.holds.orphanOf(token) }

func appendOrphan(b []byte, o Orphan) []byte {
	return encoding.AppendList(appendInfo(b, &o.Lease), o.Ranges, appendHeld)
}

// restore decodes a hold or an orphan of a snapshot. Everything is counted later.
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
