package lease

import (
	"errors"
	"fmt"
)

// These errors describe the state of a lease. Test for them with [errors.Is].
var (
	// ErrNotFound means that the lease was never granted, has expired, or was revoked, or that the
	// token or the secret does not match.
	ErrNotFound = errors.New("lease: not found")

	// ErrExists means that a live or delayed lease already has the ID.
	ErrExists = errors.New("lease: already exists")

	// ErrBadID means that an ID is not positive.
	ErrBadID = errors.New("lease: bad id")

	// ErrBound means that the lease is bound to one key, and rejects any other.
	ErrBound = errors.New("lease: bound to another key")

	// ErrExpiring means that it has been decided to end the lease, but the outcome is not known
	// yet. The lease may be reinstated, so a caller that can wait may retry once the outcome is
	// known.
	ErrExpiring = errors.New("lease: expiring")

	// ErrNotPrimary means that this member does not time leases.
	ErrNotPrimary = errors.New("lease: not primary")

	// ErrCorrupt means that a State passed to Recover is inconsistent.
	ErrCorrupt = errors.New("lease: corrupt state")
)

// A TTLError reports a TTL outside [Min, Max].
type TTLError struct{ Got, Min, Max TTL }

// Error returns the TTL and its bounds.
func (e *TTLError) Error() string {
	return fmt.Sprintf("lease: ttl %d ms is not between %d and %d ms", e.Got, e.Min, e.Max)
}

// A NameError reports that a live or delayed lease already holds the name.
type NameError struct {
	Name   string
	Holder Info
}

// Error describes the lease that holds the name.
func (e *NameError) Error() string {
	switch h := &e.Holder; {
	case h.Delayed:
		return fmt.Sprintf("lease: name %q is under a lock delay of %d ms because lease %016x "+
			"expired", e.Name, h.LockDelay, h.ID)
	case h.Owner == "":
		return fmt.Sprintf("lease: name %q is held by lease %016x", e.Name, h.ID)
	default:
		return fmt.Sprintf("lease: name %q is held by lease %016x of owner %q", e.Name, h.ID, h.Owner)
	}
}

// A KeyLimitError reports that a lease already has the maximum number of keys.
type KeyLimitError struct {
	ID    ID
	Limit int
}

// Error names the lease and the limit.
func (e *KeyLimitError) Error() string {
	return fmt.Sprintf("lease: lease %016x has %d keys attached, the maximum", e.ID, e.Limit)
}
