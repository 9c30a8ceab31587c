package client

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"weak"

	"leasehold.dev/client/leases"
	"leasehold.dev/lease"
)

// ending records how a lease ended under one token. It is shared by the Granted and everything made
// from it. A nil ending records nothing.
type ending struct {
	mu  sync.Mutex
	err error // why the lease must not be kept again, or nil
}

// note records why the lease has ended if it has ended for good: the program has given it up, or
// the cluster has reported it gone. A lease that simply was not kept alive can be kept again.
func (e *ending) note(why error) {
	if e == nil || !errors.Is(why, ErrReleased) && !errors.Is(why, ErrHandedOver) &&
		!errors.Is(why, ErrLost) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = why
	}
}

// why returns the reason why the lease must not be kept again, or nil.
func (e *ending) why() error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// endings maps IDs to the endings of leases that the program still references. A call that ends
// leases by reference looks them up here to record why they ended. endings does not keep any lease
// reachable.
type endings struct {
	mu    sync.Mutex // guards the following fields
	of    map[lease.ID][]incarnation
	block weak.Pointer[endingBlock] // the last block; it may have room for more endings
	ids   *[endingsTogether]lease.ID
	used  int // number of endings in use in block
}

// endingsTogether is the number of endings in a block. A block stays in memory while the program
// references any of its leases. The runtime finds an object's cleanup by searching a list that
// covers several kilobytes of small objects. With one cleanup per lease, that search would dominate
// the cost of a grant.
const endingsTogether = 16

// endingBlock holds consecutive endings.
type endingBlock struct{ endings [endingsTogether]ending }

// incarnation is a lease under one token.
type incarnation struct {
	token lease.Token
	block weak.Pointer[endingBlock]
	at    int // index within the block
}

// ending returns the ending of the lease, or nil if the program no longer references the lease.
func (l incarnation) ending() *ending {
	if b := l.block.Value(); b != nil {
		return &b.endings[l.at]
	}
	return nil
}

// follow connects a new Granted to its ending.
func (e *endings) follow(g *Granted) *Granted {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.block.Value()
	if b == nil || e.used == endingsTogether {
		b, e.ids, e.used = &endingBlock{}, &[endingsTogether]lease.ID{}, 0
		e.block = weak.Make(b)
		runtime.AddCleanup(b, e.forget, e.ids)
	}
	l := incarnation{token: g.Token, block: e.block, at: e.used}
	g.ending, e.ids[e.used] = &b.endings[e.used], g.ID
	e.used++
	if e.of == nil {
		e.of = make(map[lease.ID][]incarnation)
	}
	e.of[g.ID] = append(e.of[g.ID], l)
	return g
}

// followAll is like follow, for every grant in a transaction.
func (e *endings) followAll(list []Result) {
	for i := range list {
		if r := &list[i]; r.Grant != nil {
			e.follow(r.Grant)
		} else if r.Txn != nil {
			e.followAll(r.Txn.Results)
		}
	}
}

// forget removes endings that the program no longer references.
func (e *endings) forget(ids *[endingsTogether]lease.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		e.keepLocked(id, func(l incarnation) bool { return l.ending() != nil })
	}
}

// note records why the leases that match a reference have ended.
func (e *endings) note(r leases.Ref, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keepLocked(r.ID, func(l incarnation) bool {
		if r.Token != 0 && r.Token != l.token {
			return true
		}
		l.ending().note(why)
		return false
	})
}

// keepLocked removes the incarnations of an ID for which keep returns false.
func (e *endings) keepLocked(id lease.ID, keep func(incarnation) bool) {
	left := slices.DeleteFunc(e.of[id], func(l incarnation) bool { return !keep(l) })
	if len(left) == 0 {
		delete(e.of, id)
	} else {
		e.of[id] = left
	}
}
