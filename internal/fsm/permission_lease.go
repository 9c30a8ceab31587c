package fsm

import (
	"errors"
	"iter"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// BelongsTo returns what decides who may do something with a lease.
func BelongsTo(i *lease.Info) access.Lease {
	return access.Lease{Name: i.Name, Principal: i.Principal}
}

// Asker is who asks for something, with the users and roles that decide.
type Asker struct {
	By  *access.State
	Who access.Caller
}

// MayTouch says why a caller may not Hold a lease, which is to renew it, to end it and to attach
// keys to it, or See it; nil if it may. A lease that belongs to nobody, and has no name, is held by
// callers that may write all of its keys, and seen by callers that may read them, as in etcd: else
// a caller that knows an ID could let the keys of others live, or end. eachKey says why the
// caller may not do something with some key of the lease, and is asked of such a lease alone.
func (a Asker) MayTouch(
	what access.Kind, of access.Lease, eachKey func(needs access.Kind) error,
) error {
	if of != (access.Lease{}) {
		return a.By.CheckLease(a.Who, what, of)
	}
	if err := a.By.CheckKnown(a.Who); err != nil || a.By.IsRoot(a.Who) {
		return err
	}
	needs := access.Write
	if what == access.See {
		needs = access.Read
	}
	return access.OfLease(eachKey(needs))
}

// EachKey returns what says why a caller may not do something with one of some keys.
func (a Asker) EachKey(keys iter.Seq[string]) func(needs access.Kind) error {
	return func(needs access.Kind) error {
		for k := range keys {
			if err := a.By.Check(a.Who, needs, keyrange.Range{Key: k}); err != nil {
				return err
			}
		}
		return nil
	}
}

// MayRenew decides whether a caller may renew a lease, by the leases that a member has at hand. It
// is quick, and leaves undecided what needs a longer look: a lease that is not here, one with many
// keys, and a caller for whom users or roles have changed since the renewal came.
func (a Asker) MayRenew(l *lease.Lessor, id lease.ID) (decided bool, err error) {
	name, principal, ok := l.Whose(id)
	of, keys := access.Lease{Name: name, Principal: principal}, 0
	if of == (access.Lease{}) {
		keys = l.KeyCount(id)
	}
	if !ok || keys > fewKeys {
		return false, nil
	}
	err = a.MayTouch(access.Hold, of, func(needs access.Kind) error {
		if keys == 0 { // as of most leases
			return nil
		}
		return a.EachKey(l.EachKey(id))(needs)
	})
	if errors.Is(err, access.ErrOldRevision) {
		return false, nil
	}
	return true, err
}
