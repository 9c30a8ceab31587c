package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/tidwall/btree"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// These are the reasons for rejecting a Grant that holds ranges.
var (
	// ErrBadHolds means that a lease would hold too many ranges, ranges that are too long, or an
	// empty range: see CheckHolds.
	ErrBadHolds = errors.New("fsm: a lease can hold at most 64 non-empty ranges, with a total " +
		"size of at most 16 KiB")
	// ErrTooManyHolds means that the grant would exceed the maximum number of ranges that all
	// leases and orphans can hold together.
	ErrTooManyHolds = errors.New("fsm: all leases together can hold at most 100000 ranges: end " +
		"some leases, or hold fewer and wider ranges")
	// ErrOwnerHolds is like ErrTooManyHolds, but applies to the leases of one owner, or to all
	// leases without an owner.
	ErrOwnerHolds = errors.New("fsm: the leases of one owner can hold at most 10000 ranges in " +
		"total, and so can all leases without an owner: end some leases, hold fewer and wider " +
		"ranges, or name an owner")
)

// MaxCacheTTL is the maximum TTL of a lease that holds ranges, regardless of a server's
// configuration. It is also how long a write can wait for a cache that has failed.
const MaxCacheTTL lease.TTL = 600_000

// A CacheTTLError reports that a TTL is too long for a lease that holds ranges.
type CacheTTLError struct{ Got, Max lease.TTL }

// Error names the maximum TTL and the flag that sets it.
func (e *CacheTTLError) Error() string {
	return fmt.Sprintf("fsm: a lease that holds ranges for a cache may have a TTL of at most %d ms, "+
		"not %d ms: request a shorter one, or set a larger --lease-max-cache-ttl on the "+
		"servers", e.Max, e.Got)
}

// Limits on holds. Apply depends on them, so they are the same on every member.
const (
	maxHolds     = 64      // ranges per lease
	maxHoldBytes = 16_384  // total length of their start and end keys
	maxHeld      = 100_000 // ranges of all leases
	maxOwnerHeld = 10_000  // ranges of all leases of one owner, or of all leases without an owner
)

// CheckHolds returns ErrBadHolds if no lease can hold these ranges. It returns a *CacheTTLError if
// there are any ranges and the TTL exceeds the maximum, most.
func CheckHolds(holds []keyrange.Range, ttl, most lease.TTL) error {
	if len(holds) > maxHolds || textBytes(holds) > maxHoldBytes ||
		slices.ContainsFunc(holds, keyrange.Range.Empty) {
		return ErrBadHolds
	}
	if len(holds) > 0 && ttl > most {
		return &CacheTTLError{Got: ttl, Max: most}
	}
	return nil
}

// Holds contains the ranges held by each lease, and the orphans. The result of Machine.AllHolds is
// immutable and may be read from any goroutine.
type Holds struct {
	of      map[lease.ID][]keyrange.Range
	orphans map[lease.Token]Orphan
}

// held returns the ranges that a lease holds. The caller must not modify them.
func (h Holds) held(id lease.ID) []keyrange.Range { return h.of[id] }

// len returns the number of leases that hold ranges.
func (h Holds) len() int { return len(h.of) }

// All yields every lease that holds ranges, in ID order.
func (h Holds) All() iter.Seq2[lease.ID, []keyrange.Range] {
	return func(yield func(lease.ID, []keyrange.Range) bool) {
		for _, id := range slices.Sorted(maps.Keys(h.of)) {
			if !yield(id, h.of[id]) {
				return
			}
		}
	}
}

// Holding identifies a lease and the token with which it held ranges.
type Holding struct {
	ID    lease.ID
	Token lease.Token
}

// holdings is the mutable form of Holds.
type holdings struct {
	Holds
	ranges int // of all leases and orphans
	// Invariant: bytes is the sum of holdSize over all leases and orphans.
	bytes int64
	// owned counts the ranges held by the leases and orphans of each owner. All leases without an
	// owner are counted together under "". Otherwise clients could evade the limit by not naming an
	// owner. Invariant: no value is zero, and the values add up to ranges.
	owned map[string]int
	// ttls counts the leases and orphans that hold ranges, by TTL. Invariant: no value is zero.
	ttls btree.Map[lease.TTL, int]
	// shared is true while readers may still be using the maps. In that case, a change copies the
	// maps first.
	shared bool
	// changed lists the leases whose holds have changed since the last TakeHolds.
	changed []Holding
}

// set replaces the ranges that a lease holds. If ranges is nil, it removes them. l is the lease as
// it was when it began to hold ranges, except that its TTL may be newer.
func (h *holdings) set(l *lease.Info, ranges []keyrange.Range) {
	old := len(h.of[l.ID])
	if old == 0 && len(ranges) == 0 {
		return
	}
	h.change(l, len(ranges)-old)
	h.bytes += holdSize(&l.Terms, ranges) - holdSize(&l.Terms, h.of[l.ID])
	if len(ranges) > 0 {
		h.of[l.ID] = ranges
	} else {
		delete(h.of, l.ID)
	}
}

// change prepares the maps for a change to the ranges held by a lease or its orphan. more is the
// number of additional ranges. It can be negative.
func (h *holdings) change(l *lease.Info, more int) {
	if h.shared || h.of == nil {
		h.Holds, h.shared = h.copied(), false
	}
	h.count(l, more)
	h.changed = append(h.changed, Holding{l.ID, l.Token})
}

// copied returns a mutable copy of the maps.
func (h Holds) copied() Holds {
	out := Holds{make(map[lease.ID][]keyrange.Range), make(map[lease.Token]Orphan)}
	maps.Copy(out.of, h.of)
	maps.Copy(out.orphans, h.orphans)
	return out
}

// shorten caps the TTLs of leases that hold ranges, and of orphans, at MaxCacheTTL. Older releases
// had no cap, and leases that they granted must not block writes forever. Members that do not
// restore a snapshot keep timing such leases as before, so the remaining time of a lease can exceed
// its TTL.
func (h *holdings) shorten(s *lease.State) {
	for id := range h.of {
		s.Shorten(id, MaxCacheTTL)
	}
	for token, o := range h.orphans {
		o.Lease.TTL = min(o.Lease.TTL, MaxCacheTTL)
		h.orphans[token] = o
	}
}

// count adds more, which can be negative, to the number of ranges held by a lease.
func (h *holdings) count(l *lease.Info, more int) {
	h.ranges += more
	if h.owned == nil {
		h.owned = make(map[string]int)
	}
	if h.owned[l.Owner] += more; h.owned[l.Owner] == 0 {
		delete(h.owned, l.Owner)
	}
	h.time(l.TTL, cmp.Compare(more, 0))
}

// time adds more, which can be negative, to the number of leases with this TTL that hold ranges.
func (h *holdings) time(ttl lease.TTL, more int) {
	n, _ := h.ttls.Get(ttl)
	if n += more; n == 0 {
		h.ttls.Delete(ttl)
		return
	}
	h.ttls.Set(ttl, n)
}

// retime records that the TTL of a lease has changed. The lease may or may not hold ranges.
func (h *holdings) retime(id lease.ID, old, ttl lease.TTL) {
	if len(h.of[id]) > 0 {
		h.time(ttl, 1)
		h.time(old, -1)
	}
}

// recount computes all counts after a restore. It requires that the leases have been restored.
func (h *holdings) recount(lookup func(lease.ID) (lease.Info, bool)) {
	for id, ranges := range h.of {
		info, _ := lookup(id)
		h.count(&info, len(ranges))
		h.bytes += holdSize(&info.Terms, ranges)
	}
	for _, o := range h.orphans {
		h.count(&o.Lease, len(o.Ranges))
		h.bytes += holdSize(&o.Lease.Terms, o.Ranges)
	}
}

// checkHolds returns an error if a Grant cannot hold its ranges. A Grant that returns an existing
// lease needs no additional ranges.
func (m *Machine) checkHolds(c *Grant) error {
	if len(c.Holds) == 0 {
		return nil
	}
	if err := CheckHolds(c.Holds, c.Terms.TTL, MaxCacheTTL); err != nil {
		return err
	}
	_, known := m.lessor.Lookup(c.Terms.ID)
	if _, named := m.lessor.ByName(c.Terms.Name); known || named {
		return nil
	}
	return m.holds.check(c.Terms.Owner, len(c.Holds), len(c.Holds))
}

// checkChange returns the lease of a ChangeTTL, or an error if the TTL is too long for a lease that
// holds ranges.
func (m *Machine) checkChange(c *ChangeTTL) (lease.ID, error) {
	id, err := m.resolve(c.ID, c.Name)
	if err != nil {
		return 0, err
	}
	if info, _ := m.lessor.Lookup(id); info.Token != c.Token {
		return 0, lease.ErrNotFound
	}
	most := MaxCacheTTL
	if c.MaxCacheTTL > 0 {
		most = min(most, c.MaxCacheTTL)
	}
	return id, CheckHolds(m.holds.held(id), c.TTL, most)
}

// check returns an error if additional ranges would exceed the limit of an owner or of all leases.
func (h *holdings) check(owner string, own, all int) error {
	switch {
	case h.owned[owner]+own > maxOwnerHeld:
		return ErrOwnerHolds
	case h.ranges+all > maxHeld:
		return ErrTooManyHolds
	}
	return nil
}

// Holds returns the ranges that a lease currently holds. The caller must not modify them. Like the
// Machine, Holds is not safe for concurrent use: see AllHolds.
func (m *Machine) Holds(id lease.ID) []keyrange.Range { return m.holds.held(id) }

// HoldCount returns the number of leases that hold ranges.
func (m *Machine) HoldCount() int { return m.holds.len() }

// CacheTTL returns the maximum time that a write can wait for caches: see View.CacheTTL.
func (m *Machine) CacheTTL() lease.TTL {
	longest, _, _ := m.holds.ttls.Max()
	return longest
}

// AllHolds returns an immutable view of all holds that any goroutine may read. After a call, the
// next change copies the maps, so call it only when necessary.
func (m *Machine) AllHolds() Holds {
	m.holds.shared = true
	return m.holds.Holds
}

// TakeHolds returns the leases whose holds have changed since the last call because they were
// granted, orphaned, or removed. A lease can appear twice.
func (m *Machine) TakeHolds() []Holding {
	out := m.holds.changed
	m.holds.changed = nil
	return out
}

func appendHold(b []byte, id lease.ID, ranges []keyrange.Range) []byte {
	return encoding.AppendList(appendID(b, id), ranges, appendHeld)
}

// heldBy is the snapshot record of the ranges that a lease holds.
type heldBy struct {
	Lease  lease.ID
	Ranges []keyrange.Range
}

func (d *decoder) heldBy() heldBy { return heldBy{Lease: d.id(), Ranges: d.ranges()} }
