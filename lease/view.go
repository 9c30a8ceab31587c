package lease

import (
	"iter"
	"slices"
)

// View is an immutable view of the replicated part of a Lessor. Any goroutine may read it while the
// Lessor changes. While a View is in use, each change may copy data and so use additional memory.
type View struct {
	pages []*page
	names names
	len   int
	state State
	// charged is the number of leases charged to an account.
	charged int
}

// State is the saved state that a Lessor recovers from.
type State struct {
	// Leases lists the leases, in any order. View.State leaves it nil, because View.All yields the
	// leases one at a time for Add.
	Leases []Info
	// LastToken is the last token assigned.
	LastToken uint64
	// Generation increases with every restore from a backup, so that later tokens are larger than
	// any token assigned after the backup was taken (T27).
	Generation uint64

	added added
}

// generationShift is the position of the generation in a token. A 48-bit counter lasts 89 years at
// 100,000 grants per second.
const generationShift = 48

// View returns an immutable view of the current leases.
func (l *Lessor) View() View {
	v := View{
		pages:   slices.Clone(l.table.pages),
		names:   l.table.names.snapshot(),
		len:     l.table.index.len,
		state:   State{LastToken: uint64(l.lastToken), Generation: l.generation},
		charged: l.table.charged,
	}
	l.table.epoch++
	return v
}

// Len returns the number of leases.
func (v View) Len() int { return v.len }

// State returns the state without its leases. Use All to iterate over the leases.
func (v View) State() State { return v.state }

// All yields a copy of every lease, in ID order, so that identical tables yield identical
// sequences. It first sorts a list with 16 bytes per lease.
func (v View) All() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		for _, p := range inOrder(v.pages, v.len) {
			if !yield(v.info(p.slot)) {
				return
			}
		}
	}
}

// Accounts yields the leases that are charged to an account, with their accounts, in ID order.
// State does not include accounts: see [Lessor.Charge].
func (v View) Accounts() iter.Seq2[ID, string] {
	return func(yield func(ID, string) bool) {
		if v.charged == 0 {
			return
		}
		for _, p := range inOrder(v.pages, v.len) {
			account := v.pages[p.slot>>pageBits].account(p.slot)
			if account != "" && !yield(p.id, account) {
				return
			}
		}
	}
}

// info returns a copy of the lease in a slot.
func (v View) info(slot uint32) Info { return v.pages[slot>>pageBits].info(slot) }

// ByName returns a copy of the lease that holds a name. It costs a binary search. A View has no
// lookup by ID, because each View would have to copy a hash table.
func (v View) ByName(name string) (Info, bool) {
	slot, ok := v.names.find(name)
	if !ok {
		return Info{}, false
	}
	return v.info(slot), true
}

// Named yields a copy of every lease whose name begins with the prefix, ordered by name. It costs a
// binary search plus one copy per lease.
func (v View) Named(prefix string) iter.Seq[Info] {
	return func(yield func(Info) bool) {
		v.names.within(prefix, func(e nameEntry) bool {
			return yield(v.info(e.slot))
		})
	}
}
