package api

import (
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Held describes a lease's ownership, which decides who may renew it and who may see it.
type Held struct {
	ID    lease.ID
	Found bool
	Of    access.Lease
	Token lease.Token
	// Keys are the keys of a lease that has neither a name nor an owner.
	Keys []string

	started bool
	parts   int // number of reads so far
}

// maxGathered limits the number of keys that the core gathers in one step.
const maxGathered = 10_000

// maxParts limits the number of steps for one lease. After that, the rest of its keys is gathered
// in a single step, since keys could be detached and attached again forever.
const maxParts = 100

// Gather looks up leases by ID, in as many steps of the core as their keys need. It finds all keys
// that stay attached throughout. After an error, the core may still write to the list.
func Gather(list []Held, inspect func(func(*lease.Lessor)) error) error {
	for i := range list {
		list[i] = Held{ID: list[i].ID}
	}
	for len(list) > 0 {
		rest, n := list, 0
		err := inspect(func(l *lease.Lessor) {
			for room := maxGathered; n < len(rest); n++ {
				x := &rest[n]
				before := len(x.Keys)
				if whole := x.read(l, room); !whole {
					return
				}
				room -= len(x.Keys) - before
			}
		})
		if err != nil {
			return err
		}
		list = rest[n:]
	}
	return nil
}

// read reads a lease, with at most room further keys. It resumes after the last key that it has
// found and that is still attached, and reports whether it is done.
func (x *Held) read(l *lease.Lessor, room int) (whole bool) {
	info, found := l.Lookup(x.ID)
	if of := fsm.BelongsTo(&info); !x.started || !found || x.Token != info.Token || x.Of != of {
		*x = Held{
			ID: x.ID, Found: found, Of: of, Token: info.Token, started: true, parts: x.parts,
		}
	}
	if !x.Found || x.Of != (access.Lease{}) {
		return true
	}
	if x.parts++; x.parts > maxParts {
		room = l.KeyCount(x.ID)
	}
	for k := range l.EachKeyAfter(x.ID, x.last(l)) {
		if room == 0 {
			return false
		}
		room--
		x.Keys = append(x.Keys, k)
	}
	return true
}

// last returns the last key found that is still attached to the lease, or "". New keys are inserted
// before all others, so the keys after it are exactly those not found yet.
func (x *Held) last(l *lease.Lessor) string {
	for i := len(x.Keys) - 1; i >= 0; i-- {
		if l.LeaseOf(x.Keys[i]) == x.ID {
			return x.Keys[i]
		}
	}
	return ""
}
