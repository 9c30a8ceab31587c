package api

import (
	"sync"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/keyrange"
)

// Need is what a request needs as long as it is open: to read ranges, and to hold a lease.
type Need struct {
	Reads []keyrange.Range
	Holds bool // the lease
	Lease access.Lease
}

// Check says what of it a caller does not have. The lease comes first: what it holds is for those
// to know whose it is.
func (n *Need) Check(by *access.State, who access.Caller) error {
	if err := by.CheckKnown(who); err != nil {
		return err
	}
	if n.Holds {
		if err := by.CheckLease(who, access.Hold, n.Lease); err != nil {
			return err
		}
	}
	for _, r := range n.Reads {
		if err := by.Check(who, access.Read, r); err != nil {
			return err
		}
	}
	return nil
}

// Guard knows what the open requests of a caller need. When users or roles are others than when it
// looked last, it looks at all of them again: so a right that is taken away ends what is open
// before anything more is told. A stream that tells something takes it first, calls Review then,
// and tells nothing of a request that is Refused. It is safe for concurrent use.
type Guard struct {
	now func() (access.Caller, *access.State)

	mu    sync.Mutex // guards what follows
	state *access.State
	who   access.Caller
	open  map[uint64]*Need
	// refused are requests that were refused, until their end is told.
	refused map[uint64]bool
}

// NewGuard returns a guard. now says who the caller is, and the users and roles by which it is
// decided what it may be told: those of a state from which nothing was taken that is not told yet,
// or of a newer one.
func NewGuard(now func() (access.Caller, *access.State)) *Guard { return &Guard{now: now} }

// Enter notes what a request needs, or says what of it the caller does not have.
func (g *Guard) Enter(id uint64, n *Need) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	who, by := g.now()
	if err := n.Check(by, who); err != nil {
		return err
	}
	if g.open == nil {
		g.open, g.refused = make(map[uint64]*Need), make(map[uint64]bool)
	}
	g.open[id] = n
	// What was decided with an older state is decided once more.
	g.state, g.who = nil, access.Caller{}
	return nil
}

// Leave forgets a request.
func (g *Guard) Leave(id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, id)
	delete(g.refused, id)
}

// Lost is a request that needs what the caller does not have any more.
type Lost struct {
	ID  uint64
	Why error
}

// Review returns the requests that are to end, each once. It costs a comparison unless users or
// roles have changed, or the login is another. After an error the caller may have nothing open.
func (g *Guard) Review() ([]Lost, error) {
	who, by := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if by == g.state && who == g.who {
		return nil, nil
	}
	if err := by.CheckKnown(who); err != nil {
		return nil, err
	}
	g.state, g.who = by, who
	var list []Lost
	for id, n := range g.open {
		if err := n.Check(by, who); err != nil {
			list = append(list, Lost{id, err})
			delete(g.open, id)
			g.refused[id] = true
		}
	}
	return list, nil
}

// Refused reports whether a request was refused. What it had to tell is told no more.
func (g *Guard) Refused(id uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused[id]
}

// ReviewOne is Review for a caller that has one request.
func (g *Guard) ReviewOne() error {
	list, err := g.Review()
	if len(list) > 0 {
		return list[0].Why
	}
	return err
}
