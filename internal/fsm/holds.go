package fsm

import (
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"slices"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// These errors refuse a Grant that holds ranges.
var (
	// ErrBadHolds means that a lease is to hold too many ranges, too long ones, or an
	// empty one: see CheckHolds.
	ErrBadHolds = errors.New("fsm: a lease holds at most 64 ranges, of 16 KiB together, none empty")
	// ErrTooManyHolds means that all leases together hold as many ranges as they may.
	ErrTooManyHolds = errors.New("fsm: all leases together hold at most 100000 ranges: end some, " +
		"or hold fewer and wider ranges")
	// ErrOwnerHolds means that the leases of one owner do, or those that have none.
	ErrOwnerHolds = errors.New("fsm: the leases of one owner hold at most 10000 ranges together, " +
		"as do those without an owner: end some, hold fewer and wider ranges, or name an owner")
)

// Bounds of what is held. Apply depends on them, so they are the same for every
// member.
const (
	maxHolds     = 64      // ranges of one lease
	maxHoldBytes = 16_384  // of their keys and ends
	maxHeld      = 100_000 // ranges of all leases
	maxOwnerHeld = 10_000  // ranges of the leases of one owner, or of none
)

// CheckHolds returns ErrBadHolds if no lease can hold these ranges.
func CheckHolds(holds []keyrange.Range) error {
	if len(holds) > maxHolds || holdsCost(holds) > maxHoldBytes ||
		slices.ContainsFunc(holds, keyrange.Range.Empty) {
		return ErrBadHolds
	}
	return nil
}

// holdsCost is about how many bytes ranges take.
func holdsCost(holds []keyrange.Range) (sum int64) {
	for _, h := range holds {
		sum += int64(len(h.Key) + len(h.End))
	}
	return sum
}

// Holds says which ranges each lease holds. A picture of it (Machine.AllHolds) is
// immutable and may be read from any goroutine.
type Holds struct {
	of map[lease.ID][]keyrange.Range
}

// Of returns what a lease holds. The caller must not change it.
func (h Holds) Of(id lease.ID) []keyrange.Range { return h.of[id] }

// Len returns how many leases hold anything.
func (h Holds) Len() int { return len(h.of) }

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

// holdings are the holds as they change.
type holdings struct {
	Holds
	ranges int // of all leases
	// owned says how many ranges the leases of each owner hold, "" for those that have
	// none, who count as one client: else nobody would name an owner.
	// Invariant: it has no zeros, and ranges is the sum.
	owned map[string]int
	// shared says that a picture shows the map: it is copied before it changes.
	shared bool
	// changed are the leases whose holds are not what they were when that was taken.
	changed []lease.ID
}

// set makes a lease hold ranges, none to hold nothing any more. Its owner is that who had
// it when it began to hold.
func (h *holdings) set(id lease.ID, owner string, ranges []keyrange.Range) {
	old := len(h.of[id])
	if old == 0 && len(ranges) == 0 {
		return
	}
	switch {
	case h.of == nil:
		h.of = make(map[lease.ID][]keyrange.Range)
	case h.shared:
		h.of, h.shared = maps.Clone(h.of), false
	}
	h.count(owner, len(ranges)-old)
	if len(ranges) > 0 {
		h.of[id] = ranges
	} else {
		delete(h.of, id)
	}
	h.changed = append(h.changed, id)
}

// count counts ranges of a lease of an owner.
func (h *holdings) count(owner string, more int) {
	h.ranges += more
	if h.owned == nil {
		h.owned = make(map[string]int)
	}
	if h.owned[owner] += more; h.owned[owner] == 0 {
		delete(h.owned, owner)
	}
}

// recount counts all anew, because who owns the leases was not known when they were set.
func (h *holdings) recount(owner func(lease.ID) string) {
	h.ranges, h.owned = 0, nil
	for id, ranges := range h.All() {
		h.count(owner(id), len(ranges))
	}
}

// checkHolds says why a Grant cannot hold what it asks for. One of a lease that is
// there already gives nothing.
func (m *Machine) checkHolds(c *Grant) error {
	if len(c.Holds) == 0 {
		return nil
	}
	if err := CheckHolds(c.Holds); err != nil {
		return err
	}
	_, known := m.lessor.Lookup(c.Terms.ID)
	if _, named := m.lessor.ByName(c.Terms.Name); known || named {
		return nil
	}
	return m.holds.room(c.Terms.Owner, len(c.Holds), len(c.Holds))
}

// room says whether so many ranges more, above 0, may be held by leases of an owner, and by all.
func (h *holdings) room(owner string, own, all int) error {
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
func (m *Machine) Holds(id lease.ID) []keyrange.Range { return m.holds.Of(id) }

// HoldCount returns how many leases hold anything.
func (m *Machine) HoldCount() int { return m.holds.Len() }

// AllHolds returns a picture of all holds, which any goroutine may read. The first
// change after it copies the map: take one when somebody asks.
func (m *Machine) AllHolds() Holds {
	m.holds.shared = true
	return m.holds.Holds
}

// TakeHolds returns the leases whose holds have changed since the last call: given
// to a new lease, or gone. A lease may be named twice.
func (m *Machine) TakeHolds() []lease.ID {
	out := m.holds.changed
	m.holds.changed = nil
	return out
}

func appendHeld(b []byte, r keyrange.Range) []byte {
	return encoding.AppendBytes(encoding.AppendBytes(b, r.Key), r.End)
}

func (d *decoder) ranges() []keyrange.Range {
	return encoding.List(&d.Decoder, func() keyrange.Range {
		return keyrange.Range{Key: d.Text(), End: d.Text()}
	})
}

// appendGrant appends a Grant in the form of a kind.
func appendGrant(b []byte, c *Grant, k kind) []byte {
	b = appendTerms(b, &c.Terms)
	if k == kindGrant {
		return b
	}
	b = appendMore(b, &c.Terms, c.Renew)
	if k == kindGrantHolds {
		b = encoding.AppendList(b, c.Holds, appendHeld)
	}
	return b
}

func (d *decoder) grantHolds() *Grant {
	g := d.grant()
	g.Holds = d.ranges()
	return g
}

func appendHold(b []byte, id lease.ID, ranges []keyrange.Range) []byte {
	b = binary.AppendVarint(b, int64(id))
	return encoding.AppendList(b, ranges, appendHeld)
}
