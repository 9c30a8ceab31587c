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
	mu sync.Mutex
	of map[lease.ID][]life
}

// life is a lease under one token.
type life struct {
	token lease.Token
	fate  weak.Pointer[fate]
}

// follow makes a Granted learn what becomes of its lease.
func (f *fates) follow(g *Granted) *Granted {
	if g.fate == nil {
		g.fate = &fate{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = make(map[lease.ID][]life)
	}
	f.of[g.ID] = append(f.of[g.ID], life{g.Token, weak.Make(g.fate)})
	runtime.AddCleanup(g.fate, f.forget, g.ID)
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
func (f *fates) forget(id lease.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(id, func(l life) bool { return l.fate.Value() != nil })
}

// end notes why the leases that a reference names have ended.
func (f *fates) end(r LeaseRef, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(r.ID, func(l life) bool {
		if r.Token != 0 && r.Token != l.token {
			return true
		}
		l.fate.Value().end(why)
		return false
	})
}

func (f *fates) keepLocked(id lease.ID, keep func(life) bool) {
	var left []life
	for _, l := range f.of[id] {
		if keep(l) {
			left = append(left, l)
		}
	}
	if len(left) == 0 {
		delete(f.of, id)
	} else {
		f.of[id] = left
	}
}
