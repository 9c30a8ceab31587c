package lease

import (
	"errors"
	"fmt"
)

// These errors are facts about a lease. Test for them with [errors.Is].
var (
	// ErrNotFound means that the lease was never granted, has expired, or was revoked; or that
	// the token or the secret is not the lease's.
	ErrNotFound = errors.New("lease: not found")

	// ErrExists means that a live or delayed lease already has the ID.
	ErrExists = errors.New("lease: already exists")

	// ErrBadID means that an ID is not above zero.
	ErrBadID = errors.New("lease: bad id")

	// ErrBound means that the lease is bound to one key, and accepts no other.
	ErrBound = errors.New("lease: bound to another key")

	// ErrExpiring means that the decision to end the lease has been made, but its outcome is not
	// known yet. The lease may become alive again, so a caller that can wait may retry once the
	// outcome is known.
	ErrExpiring = errors.New("lease: expiring")

	// ErrNotPrimary means that this member does not time leases.
	ErrNotPrimary = errors.New("lease: not primary")

	// ErrCorrupt means that a State for recovery contradicts itself.
	ErrCorrupt = errors.New("lease: corrupt state")
)

// A TTLError reports a TTL outside [Min, Max].
type TTLError struct{ Got, Min, Max TTL }

// Error describes the bounds.
func (e *TTLError) Error() string {
	return fmt.Sprintf("lease: ttl %d ms is not within %d and %d ms", e.Got, e.Min, e.Max)
}

// A NameError reports that a live or delayed lease already holds the name.
type NameError struct {
	Name   string
	Holder Info
}

// Error identifies the holder of the name.
func (e *NameError) Error() string {
	switch h := &e.Holder; {
	case h.Delayed:
		return fmt.Sprintf("lease: name %q has a lock delay of %d ms since lease %016x expired",
			e.Name, h.LockDelay, h.ID)
	case h.Owner == "":
		return fmt.Sprintf("lease: name %q is held by lease %016x", e.Name, h.ID)
	default:
		return fmt.Sprintf("lease: name %q is held by lease %016x of owner %q", e.Name, h.ID, h.Owner)
	}
}

// A KeyLimitError reports that a lease already has as many keys as it may have.
type KeyLimitError struct {
	ID    ID
	Limit int
}

// Error identifies the lease.
func (e *KeyLimitError) Error() string {
	return fmt.Sprintf("lease: lease %016x has %d keys attached, the maximum", e.ID, e.Limit)
}
