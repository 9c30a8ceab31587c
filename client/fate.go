package client

import (
	"errors"
	"runtime"
	"sync"
	"weak"

	"leasehold.dev/lease"
)

// fate is what became of a lease under one token, shared by the Granted and all that was made
// of it. A nil fate knows nothing.
type fate struct {
	mu  sync.Mutex
	err error // why it must not be kept again; nil as long as it may
}

// end notes why the lease has ended, if that is for good: the program has given it away, or
// the cluster has said that it is gone. One that was only not kept may be kept again.
func (f *fate) end(why error) {
	if f == nil || !errors.Is(why, ErrRevoked) && !errors.Is(why, ErrHandedOver) &&
		!errors.Is(why, ErrLost) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = why
	}
}

// ended returns why the lease must not be kept again, nil if it may.
func (f *fate) ended() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// fates finds what the program still has of leases that a client was granted, by their IDs, so
// that it is known there what became of them through a reference. It keeps none alive.
type fates struct {
	mu    sync.Mutex // guards what follows
	of    map[lease.ID]life
	block weak.Pointer[fateBlock] // in which there may be room
	ids   *[fatesTogether]lease.ID
	used  int // of the block
}

// fatesTogether are remembered for as long as the program has something of one of them. The
// runtime looks for what it is to do when an object goes in a list for some kilobytes of small
// ones, so one by one they would take longer than all the rest of a grant.
const fatesTogether = 16

// fateBlock is fates that are made one after another.
type fateBlock struct{ fates [fatesTogether]fate }

// life is a lease under one token.
type life struct {
	token lease.Token
	block weak.Pointer[fateBlock]
	at    int   // in the block
	next  *life // of the same ID; nil for none
}

// fate returns the lease's, nil if the program has let go of it.
func (l life) fate() *fate {
	if b := l.block.Value(); b != nil {
		return &b.fates[l.at]
	}
	return nil
}

// follow makes a new Granted learn what becomes of its lease.
func (f *fates) follow(g *Granted) *Granted {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.block.Value()
	if b == nil || f.used == fatesTogether {
		b, f.ids, f.used = &fateBlock{}, &[fatesTogether]lease.ID{}, 0
		f.block = weak.Make(b)
		runtime.AddCleanup(b, f.forget, f.ids)
	}
	l := life{token: g.Token, block: f.block, at: f.used}
	g.fate, f.ids[f.used] = &b.fates[f.used], g.ID
	f.used++
	if f.of == nil {
		f.of = make(map[lease.ID]life)
	}
	if old, ok := f.of[g.ID]; ok {
		before := old // else old would be on the heap for every lease
		l.next = &before
	}
	f.of[g.ID] = l
	return g
}

// followAll is follow for all that a transaction has granted.
func (f *fates) followAll(list []Result) {
	for i := range list {
		if r := &list[i]; r.Grant != nil {
			f.follow(r.Grant)
		} else if r.Txn != nil {
			f.followAll(r.Txn.Results)
		}
	}
}

// forget drops what the program has let go of.
func (f *fates) forget(ids *[fatesTogether]lease.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		f.keepLocked(id, func(l life) bool { return l.fate() != nil })
	}
}

// end notes why the leases that a reference names have ended.
func (f *fates) end(r LeaseRef, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(r.ID, func(l life) bool {
		if r.Token != 0 && r.Token != l.token {
			return true
		}
		l.fate().end(why)
		return false
	})
}

// keepLocked keeps those of an ID that are to be kept.
func (f *fates) keepLocked(id lease.ID, keep func(life) bool) {
	only, ok := f.of[id]
	if !ok {
		return
	}
	if only.next == nil { // nearly always; this takes no memory
		if !keep(only) {
			delete(f.of, id)
		}
		return
	}
	first := only
	var kept *life
	for l := &first; l != nil; {
		next := l.next
		if keep(*l) {
			l.next, kept = kept, l
		}
		l = next
	}
	if kept == nil {
		delete(f.of, id)
	} else {
		f.of[id] = *kept
	}
}
