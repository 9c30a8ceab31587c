package api

import (
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Held describes the ownership of a lease, which determines who may renew it and who may see it.
type Held struct {
	ID    lease.ID
	Found bool
	Of    access.Lease
	Token lease.Token
	// Keys contains the attached keys if the lease has neither a name nor an owner.
	Keys []string

	started bool
	parts   int // number of reads so far
}

// maxGathered limits the number of keys that the core collects in one step.
const maxGathered = 10_000

// maxParts limits the number of steps for one lease. After that, the remaining keys are collected
// in a single step. Otherwise a client could prolong the process forever by detaching and attaching
// keys.
const maxParts = 100

// Gather looks up leases by ID. If they have many keys, it splits the work into several steps of
// the core. It finds all keys that stay attached throughout. After an error, the core may still
// write to the list.
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

// read reads a lease and at most room more keys. It resumes after the last key found that is still
// attached, and reports whether it has finished.
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
// before all existing ones, so only the keys after this one remain to be found.
func (x *Held) last(l *lease.Lessor) string {
	for i := len(x.Keys) - 1; i >= 0; i-- {
		if l.LeaseOf(x.Keys[i]) == x.ID {
			return x.Keys[i]
		}
	}
	return ""
}
