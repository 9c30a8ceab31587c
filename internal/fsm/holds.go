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

// These errors refuse a Grant that holds ranges.
var (
	// ErrBadHolds means that a lease is to hold too many ranges, too long ones, or an
	// empty one: see CheckHolds.
	ErrBadHolds = errors.New("fsm: a lease holds at most 64 ranges, of 16 KiB together, none empty")
	// ErrTooManyHolds means that all leases together hold as many ranges as they may, and
	// orphans with them.
	ErrTooManyHolds = errors.New("fsm: all leases together hold at most 100000 ranges: end some, " +
		"or hold fewer and wider ranges")
	// ErrOwnerHolds means that the leases of one owner do, or those that have none.
	ErrOwnerHolds = errors.New("fsm: the leases of one owner hold at most 10000 ranges together, " +
		"as do those without an owner: end some, hold fewer and wider ranges, or name an owner")
)

// MaxCacheTTL is the longest TTL of a lease that holds ranges, whatever a server allows. A
// write waits that long for a cache that is dead.
const MaxCacheTTL lease.TTL = 600_000

// A CacheTTLError refuses a TTL that is too long for a lease that holds ranges.
type CacheTTLError struct{ Got, Max lease.TTL }

// Error says what is allowed, and who decides that.
func (e *CacheTTLError) Error() string {
	return fmt.Sprintf("fsm: a lease that holds ranges for a cache may have a TTL of at most %d ms, "+
		"not %d ms: ask for less, or set a longer --lease-max-cache-ttl for the servers", e.Max, e.Got)
}

// Bounds of what is held. Apply depends on them, so they are the same for every
// member.
const (
	maxHolds     = 64      // ranges of one lease
	maxHoldBytes = 16_384  // of their keys and ends
	maxHeld      = 100_000 // ranges of all leases
	maxOwnerHeld = 10_000  // ranges of the leases of one owner, or of none
)

// CheckHolds returns ErrBadHolds if no lease can hold these ranges, and a *CacheTTLError if
// none of this TTL can, where that may be most.
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

// Holds says which ranges each lease holds, and which orphans there are. A picture of it
// (Machine.AllHolds) is immutable and may be read from any goroutine.
type Holds struct {
	of      map[lease.ID][]keyrange.Range
	orphans map[lease.Token]Orphan
}

// held returns what a lease holds. The caller must not change it.
func (h Holds) held(id lease.ID) []keyrange.Range { return h.of[id] }

// len returns how many leases hold anything.
func (h Holds) len() int { return len(h.of) }

// All yields every lease that holds anything, in ID order, with what it holds.
func (h Holds) All() iter.Seq2[lease.ID, []keyrange.Range] {
	return func(yield func(lease.ID, []keyrange.Range) bool) {
		for _, id := range slices.Sorted(maps.Keys(h.of)) {
			if !yield(id, h.of[id]) {
				return
			}
		}
	}
}

// Holding names a lease under the token with which it held ranges.
type Holding struct {
	ID    lease.ID
	Token lease.Token
}

// holdings are the holds as they change.
type holdings struct {
	Holds
	ranges int // of all leases and orphans
	// Invariant: bytes is the sum of holdSize, over leases and orphans.
	bytes int64
	// owned says how many ranges the leases and orphans of each owner hold, "" for
	// leases without an owner. These count as one client: otherwise nobody would name an
	// owner. Invariant: it has no zeros, and ranges is the sum.
	owned map[string]int
	// ttls says how many leases and orphans hold something for a TTL.
	// Invariant: it has no zeros.
	ttls btree.Map[lease.TTL, int]
	// shared says that a picture shows the maps: they are copied before they change.
	shared bool
	// changed are those whose holds are not what they were when that was taken.
	changed []Holding
}

// set makes a lease hold ranges, or nothing any more. The lease is as it was when it began
// to hold, but for its TTL.
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

// change notes that so many ranges more, or fewer if below 0, will be held by a lease, or the
// orphan of one, and makes the maps ready for that.
func (h *holdings) change(l *lease.Info, more int) {
	if h.shared || h.of == nil {
		h.Holds, h.shared = h.copied(), false
	}
	h.count(l, more)
	h.changed = append(h.changed, Holding{l.ID, l.Token})
}

// copied returns holds that may be changed.
func (h Holds) copied() Holds {
	out := Holds{make(map[lease.ID][]keyrange.Range), make(map[lease.Token]Orphan)}
	maps.Copy(out.of, h.of)
	maps.Copy(out.orphans, h.orphans)
	return out
}

// shorten shortens the TTLs of leases that hold ranges for longer than any may now, and those
// of orphans. None was granted since there is a bound; what is older must not hold up writes
// for ever. All others stay as they are at the members that need no snapshot: of a lease more may
// remain than its TTL.
func (h *holdings) shorten(s *lease.State) {
	for id := range h.of {
		s.Shorten(id, MaxCacheTTL)
	}
	for token, o := range h.orphans {
		o.Lease.TTL = min(o.Lease.TTL, MaxCacheTTL)
		h.orphans[token] = o
	}
}

// count counts ranges that a lease begins to hold or, below 0, holds no more.
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

// time notes that one lease more or, with -1, one fewer holds ranges for a TTL.
func (h *holdings) time(ttl lease.TTL, more int) {
	n, _ := h.ttls.Get(ttl)
	if n += more; n == 0 {
		h.ttls.Delete(ttl)
		return
	}
	h.ttls.Set(ttl, n)
}

// retime notes that a lease, which may hold something, has another TTL.
func (h *holdings) retime(id lease.ID, old, ttl lease.TTL) {
	if len(h.of[id]) > 0 {
		h.time(ttl, 1)
		h.time(old, -1)
	}
}

// recount counts all that restore took, when the leases are known.
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

// checkHolds says why a Grant cannot hold what it asks for. One of a lease that is
// there already gives nothing.
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

// checkChange says which lease a ChangeTTL is about, or why it is too much for one that holds
// something.
func (m *Machine) checkChange(c *ChangeTTL) (lease.ID, error) {
	id, err := m.meant(c.ID, c.Name)
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

// check returns an error if so many more ranges must not be held, by an owner and by all.
func (h *holdings) check(owner string, own, all int) error {
	switch {
	case h.owned[owner]+own > maxOwnerHeld:
		return ErrOwnerHolds
	case h.ranges+all > maxHeld:
		return ErrTooManyHolds
	}
	return nil
}

// Holds returns what a lease holds now. The caller must not change it. Like the
// Machine itself it is not safe for concurrent use: see AllHolds.
func (m *Machine) Holds(id lease.ID) []keyrange.Range { return m.holds.held(id) }

// HoldCount returns how many leases hold anything.
func (m *Machine) HoldCount() int { return m.holds.len() }

// CacheTTL returns for how long a write may have to wait for caches: see View.CacheTTL.
func (m *Machine) CacheTTL() lease.TTL {
	longest, _, _ := m.holds.ttls.Max()
	return longest
}

// AllHolds returns a picture of all holds, which any goroutine may read. The first
// change after it copies the maps: take one when somebody asks.
func (m *Machine) AllHolds() Holds {
	m.holds.shared = true
	return m.holds.Holds
}

// TakeHolds returns the leases whose holds have changed since the last call: given
// to a new lease, orphaned, or gone. One may be named twice.
func (m *Machine) TakeHolds() []Holding {
	out := m.holds.changed
	m.holds.changed = nil
	return out
}

func appendHold(b []byte, id lease.ID, ranges []keyrange.Range) []byte {
	return encoding.AppendList(appendID(b, id), ranges, appendHeld)
}

// heldBy is what a lease holds, as in a snapshot.
type heldBy struct {
	Lease  lease.ID
	Ranges []keyrange.Range
}

func (d *decoder) heldBy() heldBy { return heldBy{Lease: d.id(), Ranges: d.ranges()} }
