package api

import (
	"sync"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/keyrange"
)

// Need lists the permissions that an open request needs: to read some ranges and to hold a lease.
type Need struct {
	Reads []keyrange.Range
	Holds bool // whether permission to hold Lease is needed
	Lease access.Lease
}

// Check returns an error if the caller lacks any of these permissions. It checks the lease first,
// because only the lease's owner may learn which ranges it holds.
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

// Guard checks the permissions of a caller's open requests. It checks all of them again after
// users, roles or the login have changed, so revoking a permission ends a request before it
// delivers anything else. A stream takes the responses to deliver, then calls Review, and drops the
// responses to requests that are Refused. A Guard is safe for concurrent use.
type Guard struct {
	now func() (access.Caller, *access.State)

	mu    sync.Mutex // guards the following fields
	state *access.State
	who   access.Caller
	open  map[uint64]*Need
	// refused contains the refused requests that have not ended yet.
	refused map[uint64]bool
}

// NewGuard returns a Guard. Its argument must return the caller, and the users and roles to check
// the caller against. They must come from the state used for the next delivery or from a newer
// state.
func NewGuard(now func() (access.Caller, *access.State)) *Guard { return &Guard{now: now} }

// Enter adds a request. It returns an error if the caller lacks a permission that the request
// needs.
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
	// The state may have changed, so the next Review must check everything again.
	g.state, g.who = nil, access.Caller{}
	return nil
}

// Leave removes a request.
func (g *Guard) Leave(id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, id)
	delete(g.refused, id)
}

// Lost is a request that has lost a permission it needs.
type Lost struct {
	ID  uint64
	Why error
}

// Review returns the requests that must end, each of them once. It is cheap unless users, roles or
// the login have changed. If it returns an error, all of the caller's requests must end.
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

// Refused reports whether a request was refused. A refused request must not deliver anything else.
func (g *Guard) Refused(id uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused[id]
}

// ReviewOne is Review for a Guard with a single request.
func (g *Guard) ReviewOne() error {
	list, err := g.Review()
	if len(list) > 0 {
		return list[0].Why
	}
	return err
}
