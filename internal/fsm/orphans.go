package fsm

import (
	"iter"
	"maps"
	"slices"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Orphan is a hold that has outlived its lease: that was revoked, or got another holder. The
// cache of the last holder may answer from memory until it hears of that, or its time is over.
// So writes wait for it as before (C1), until the leader knows that the cache has nothing any
// more (DropOrphans). Nothing else waits: the lease, its name and its keys are gone at once.
type Orphan struct {
	// Lease is the lease as the last holder had it.
	Lease  lease.Info
	Ranges []keyrange.Range
	// Until is the expiry of the lease by this member's timer, 0 if there was none: the
	// holder was promised no more. It is no part of the replicated state.
	Until lease.Instant
}

// DropOrphans drops orphans, whose caches have nothing any more: they have said so, or their
// time is over. That stays true under any leader, since nothing renews them. So it needs no fence
// as Expire does.
type DropOrphans struct{ Tokens []lease.Token }

func (*DropOrphans) kind() kind { return kindDropOrphans }

// orphan makes an orphan of what a lease held that has lost its holder before its time. The
// lease is as it was before, and so is its expiry by this member's timer.
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

// orphanOf returns the orphan of the lease that had a token.
func (h Holds) orphanOf(token lease.Token) (o Orphan, ok bool) {
	o, ok = h.orphans[token]
	return o, ok
}

// Orphans yields every orphan, in the order of the tokens.
func (h Holds) Orphans() iter.Seq[Orphan] {
	return func(yield func(Orphan) bool) {
		for _, token := range slices.Sorted(maps.Keys(h.orphans)) {
			if !yield(h.orphans[token]) {
				return
			}
		}
	}
}

// Orphan is that of Holds, as of now. Like Holds it is not safe for concurrent use.
func (m *Machine) Orphan(token lease.Token) (Orphan, bool) { return m.holds.orphanOf(token) }

func appendOrphan(b []byte, o Orphan) []byte {
	return encoding.AppendList(appendInfo(b, &o.Lease), o.Ranges, appendHeld)
}

// restore takes what a snapshot says of a hold, or of an orphan. All is counted later.
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
