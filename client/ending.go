package client

import (
	"errors"
	"runtime"
	"sync"
	"weak"

	"leasehold.dev/client/leases"
	"leasehold.dev/lease"
)

// ending is what became of a lease under one token, shared by the Granted and all that was made
// of it. A nil ending knows nothing.
type ending struct {
	mu  sync.Mutex
	err error // why it must not be kept again; nil as long as it may
}

// note keeps why the lease has ended, if that is for good: the program has given it away, or
// the cluster has said that it is gone. One that was only not kept may be kept again.
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

// why returns why the lease must not be kept again, nil if it may.
func (e *ending) why() error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// endings finds what the program still has of leases that a client was granted, by their IDs, so
// that it is known there what became of them through a reference. It keeps none alive.
type endings struct {
	mu    sync.Mutex // guards what follows
	of    map[lease.ID]incarnation
	block weak.Pointer[endingBlock] // in which there may be room
	ids   *[endingsTogether]lease.ID
	used  int // of the block
}

// endingsTogether are remembered for as long as the program has something of one of them. The
// runtime looks for what it is to do when an object goes in a list for some kilobytes of small
// ones, so one by one they would take longer than all the rest of a grant.
const endingsTogether = 16

// endingBlock is endings that are made one after another.
type endingBlock struct{ endings [endingsTogether]ending }

// incarnation is a lease under one token.
type incarnation struct {
	token lease.Token
	block weak.Pointer[endingBlock]
	at    int          // in the block
	next  *incarnation // of the same ID; nil for none
}

// ending returns the lease's, nil if the program has let go of it.
func (l incarnation) ending() *ending {
	if b := l.block.Value(); b != nil {
		return &b.endings[l.at]
	}
	return nil
}

// follow makes a new Granted learn what becomes of its lease.
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
		e.of = make(map[lease.ID]incarnation)
	}
	if old, ok := e.of[g.ID]; ok {
		before := old // else old would be on the heap for every lease
		l.next = &before
	}
	e.of[g.ID] = l
	return g
}

// followAll is follow for all that a transaction has granted.
func (e *endings) followAll(list []Result) {
	for i := range list {
		if r := &list[i]; r.Grant != nil {
			e.follow(r.Grant)
		} else if r.Txn != nil {
			e.followAll(r.Txn.Results)
		}
	}
}

// forget drops what the program has let go of.
func (e *endings) forget(ids *[endingsTogether]lease.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		e.keepLocked(id, func(l incarnation) bool { return l.ending() != nil })
	}
}

// note keeps why the leases that a reference names have ended.
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

// keepLocked keeps those of an ID that are to be kept.
func (e *endings) keepLocked(id lease.ID, keep func(incarnation) bool) {
	only, ok := e.of[id]
	if !ok {
		return
	}
	if only.next == nil { // nearly always; this takes no memory
		if !keep(only) {
			delete(e.of, id)
		}
		return
	}
	first := only
	var kept *incarnation
	for l := &first; l != nil; {
		next := l.next
		if keep(*l) {
			l.next, kept = kept, l
		}
		l = next
	}
	if kept == nil {
		delete(e.of, id)
	} else {
		e.of[id] = *kept
	}
}
