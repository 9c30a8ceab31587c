package api

import (
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Held is whose a lease is: what decides who may renew it, and who may be told of it.
type Held struct {
	ID    lease.ID
	Found bool
	Of    access.Lease
	Token lease.Token
	// Keys are those of a lease without a name that belongs to nobody.
	Keys []string

	started bool
	parts   int // in which the keys were read so far
}

// maxGathered bounds the keys that the core gathers in one step.
const maxGathered = 10_000

// maxParts bounds the steps for one lease: then the rest of its keys is gathered in one. Its keys
// may be taken off and put on again for ever.
const maxParts = 100

// Gather looks at leases by their IDs, in as many steps of the core as their keys need. All keys
// that are on a lease throughout are found. After an error the core may still write to the list.
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

// read takes what there is of a lease, with no more keys than there is room for. It goes on where
// it ended: behind the last of the keys that it has found that is still there. It reports whether
// that was all.
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

// last returns the last key that was found and is still on the lease, "" if there is none. New keys
// come before all others, so those behind it are all that were not found yet.
func (x *Held) last(l *lease.Lessor) string {
	for i := len(x.Keys) - 1; i >= 0; i-- {
		if l.LeaseOf(x.Keys[i]) == x.ID {
			return x.Keys[i]
		}
	}
	return ""
}
