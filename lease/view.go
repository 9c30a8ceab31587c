package lease

import (
	"iter"
	"slices"
)

// View is an immutable view of the replicated part of a Lessor. Any goroutine may read it while the
// Lessor changes. While it is in use, leases that change take additional memory.
type View struct {
	pages []*page
	names names
	len   int
	state State
	// charged is how many leases are on accounts.
	charged int
}

// State is the saved state from which a Lessor recovers.
type State struct {
	// Leases are the leases, in any order. View.State leaves it nil, because
	// View.All yields them one by one, for Add.
	Leases []Info
	// LastToken is the last token assigned.
	LastToken uint64
	// Generation increases with every restore from a backup, so that later tokens are larger than
	// those assigned after the backup was taken (T27).
	Generation uint64

	added added
}

// generationShift is the position of the generation in a token. A counter of 48 bits lasts 89 years
// at 100,000 grants a second.
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

// State returns the state without its leases, which All yields.
func (v View) State() State { return v.state }

// All yields a copy of every lease, in ID order, so that equal tables yield equal sequences. It
// first sorts 16 bytes for each lease.
func (v View) All() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		for _, p := range inOrder(v.pages, v.len) {
			if !yield(v.info(p.slot)) {
				return
			}
		}
	}
}

// Accounts yields the leases that are charged to an account, in ID order, with their accounts.
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
// lookup by ID: that needs a hash table, which each View would have to copy.
func (v View) ByName(name string) (Info, bool) {
	slot, ok := v.names.find(name)
	if !ok {
		return Info{}, false
	}
	return v.info(slot), true
}

// Named yields a copy of every lease whose name begins with the prefix, in the order of the
// names. The cost is a binary search and the leases that it yields.
func (v View) Named(prefix string) iter.Seq[Info] {
	return func(yield func(Info) bool) {
		v.names.within(prefix, func(e nameEntry) bool {
			return yield(v.info(e.slot))
		})
	}
}
