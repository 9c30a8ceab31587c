package lease

import "fmt"

// Recover replaces everything except the clock with a saved state. The state has no keys: see
// Reattach. The countdown of a checkpointed lease starts at the next promotion. If the state is
// inconsistent, Recover returns an error and changes nothing. It panics on a primary. The Lessor
// takes ownership of the leases added with State.Add, so the caller must not use the state again.
func (l *Lessor) Recover(s State) error {
	if l.tracker != nil {
		panic("lease: Recover was called on a primary")
	}
	last := Token(s.LastToken)
	if s.Generation >= 1<<(64-generationShift) || uint64(last>>generationShift) > s.Generation {
		return fmt.Errorf("%w: last token %#x does not match generation %d",
			ErrCorrupt, last, s.Generation)
	}
	for i := range s.Leases {
		s.Add(&s.Leases[i])
	}
	if err := s.CheckTokens(); err != nil {
		return err
	}
	t := s.added.complete()
	if s.added.err != nil {
		return s.added.err
	}
	t.changes += l.table.changes
	l.table, l.keys, l.kept, l.countdown = t, newAttachments(), 0, paged[Instant]{}
	l.counting = 0
	l.generation = s.Generation
	l.lastToken = max(last, Token(s.Generation<<generationShift))
	return nil
}

// added holds the leases of a State that were added with Add, rather than listed in Leases.
type added struct {
	// table is nil if no lease was added. It has no index until complete builds one.
	table *table
	// newest is the largest token of any lease, and its is the ID of that lease.
	newest Token
	its    ID
	err    error // why the first rejected lease could not be added
}

// Add adds a lease to the state. It uses less memory than listing the lease in Leases, because only
// one copy is kept. If the lease is inconsistent with the others, Recover returns the error.
func (s *State) Add(i *Info) {
	a := &s.added
	if a.table == nil {
		a.table = newTable(0)
	}
	if a.err != nil {
		return
	}
	if a.err = a.table.plausible(i); a.err != nil {
		return
	}
	if i.Token > a.newest {
		a.newest, a.its = i.Token, i.ID
	}
	a.table.store(*i)
}

// complete returns the table with its index. Building the index at the end takes half as long as
// growing it one lease at a time.
func (a *added) complete() *table {
	if a.table == nil {
		a.table = newTable(0)
	}
	if a.err == nil && a.table.index.len != int(a.table.top) {
		a.err = a.table.enterAll()
	}
	return a.table
}

// Shorten caps the TTL of a lease that was added. It does nothing if there is no such lease.
func (s *State) Shorten(id ID, most TTL) {
	t := s.added.complete()
	slot, ok := t.find(id)
	if !ok || t.record(slot).ttl <= most {
		return
	}
	r := t.change(slot)
	r.ttl, r.remaining = most, min(r.remaining, most)
}

// CheckTokens returns an error if any added lease has a token larger than LastToken.
func (s *State) CheckTokens() error {
	if a := &s.added; uint64(a.newest) > s.LastToken {
		return fmt.Errorf("%w: lease %016x has token %#x, but the last token is %#x",
			ErrCorrupt, a.its, a.newest, s.LastToken)
	}
	return nil
}

// plausible returns an error if a lease cannot be added to t. It does not check for another lease
// with the same ID.
func (t *table) plausible(i *Info) error {
	switch {
	case i.ID <= 0:
		return fmt.Errorf("%w: id %d", ErrCorrupt, i.ID)
	case i.TTL <= 0 || i.Remaining < 0:
		return fmt.Errorf("%w: lease %016x has a TTL of %d ms, with %d ms remaining",
			ErrCorrupt, i.ID, i.TTL, i.Remaining)
	case i.LockDelay < 0 || i.Delayed && i.LockDelay == 0:
		return fmt.Errorf("%w: lease %016x has a lock delay of %d ms, and its delayed flag is %v",
			ErrCorrupt, i.ID, i.LockDelay, i.Delayed)
	case i.Token == 0:
		return fmt.Errorf("%w: lease %016x has no token", ErrCorrupt, i.ID)
	}
	if _, ok := t.names.find(i.Name); ok {
		return fmt.Errorf("%w: two leases named %q", ErrCorrupt, i.Name)
	}
	return nil
}
