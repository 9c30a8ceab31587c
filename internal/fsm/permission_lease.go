package fsm

import (
	"errors"
	"iter"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// BelongsTo returns the attributes of a lease that permissions depend on.
func BelongsTo(i *lease.Info) access.Lease {
	return access.Lease{Name: i.Name, Principal: i.Principal}
}

// Asker is a caller, together with the users and roles that determine its permissions.
type Asker struct {
	By  *access.State
	Who access.Caller
}

// MayTouch returns an error if a caller is not permitted to Hold or See a lease. Hold permits
// renewing the lease, ending it and attaching keys to it.
//
// For a lease with neither a principal nor a name, the rule is etcd's: a caller that may write all
// keys of the lease may Hold it, and a caller that may read all of them may See it. Without this
// rule, any caller with the ID could keep other callers' keys alive, or end them. eachKey is called
// only for such a lease. It returns an error if the caller lacks the permission for any of the
// keys.
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

// EachKey returns a function that checks that the caller has a permission for each of the keys.
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

// MayRenew decides, based on a member's own leases, whether a caller may renew a lease. It is fast,
// but leaves some cases undecided: a lease that this member does not have, a lease with many keys,
// and a caller whose users or roles changed after the renewal arrived.
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
		if keys == 0 { // the common case
			return nil
		}
		return a.EachKey(l.EachKey(id))(needs)
	})
	if errors.Is(err, access.ErrOldRevision) {
		return false, nil
	}
	return true, err
}
