package leases

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"leasehold.dev/client/internal/message"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// Ref identifies a lease by ID, by Name, or by both, which must then refer to the same lease.
// Describe, Resume and CheckLease accept either an ID or a Name.
type Ref struct {
	ID lease.ID
	// Token, if not 0, is the token that the lease must still have.
	Token lease.Token
	// Name identifies the lease that has this name when the request is applied. Without a Token,
	// that may not be the lease that the program expects.
	Name string
}

// String returns the reference in readable form.
func (r Ref) String() string {
	if r.Name != "" {
		return fmt.Sprintf("lease %q", r.Name)
	}
	return fmt.Sprintf("lease %016x", r.ID)
}

// Renew returns an operation that restarts the lease's TTL when the transaction is applied. It does
// not affect how long the client considers a lease valid, because the client itself renews the
// leases that it keeps alive. A reference without an ID needs a Token. Otherwise a holder could
// renew its successor's lease and mistake it for its own.
func (r Ref) Renew() store.Op {
	return message.Renew{LeaseRef: message.Ref(r.ID, r.Token, r.Name)}
}

// Revoke returns an operation that ends the lease and deletes its keys. If this client keeps the
// lease alive, call client.Lease.Close first, so that the program no longer relies on the lease.
func (r Ref) Revoke() store.Op {
	return message.Revoke{LeaseRef: message.Ref(r.ID, r.Token, r.Name)}
}

// NewID returns a random ID for a lease. A grant in a transaction needs an ID.
func NewID() lease.ID {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return lease.ID(max(1, binary.BigEndian.Uint64(b[:])>>1))
}

// Info is the cluster's description of a lease.
type Info struct {
	ID lease.ID
	// Token is the fencing token. It increases with every grant, handover and resume.
	Token lease.Token
	TTL   time.Duration
	// Remaining is a lower bound on the remaining time of the lease when the answer was sent. The
	// holder of the lease should use client.Lease.ValidUntil instead.
	Remaining time.Duration
	// Name is unique among live leases.
	Name, Owner string
	// Principal is the user to whom the lease belongs, if it was granted under access control.
	Principal string
	Labels    map[string]string
	LockDelay time.Duration
	// KeepKeys reports whether expiry detaches the keys instead of deleting them.
	KeepKeys bool
	// Delayed reports whether the lease has expired and is in its lock delay, during which its name
	// and keys stay.
	Delayed bool
	// Bound reports whether the lease was created by a Put with a TTL. Such a lease accepts no
	// other key, and ends when its key is deleted or moves to another lease.
	Bound bool
	// Keys contains the attached keys, if they were requested.
	Keys []string
	// KeyCount is the number of attached keys. It is set by Describe and List.
	KeyCount int64
	// Holds contains the ranges that the holder may cache. It is set by Describe and List.
	Holds []store.KeyRange
}

// Filter selects the leases to list. A lease must match all fields that are set.
type Filter struct {
	// NamePrefix is a prefix of the name. If it is set, leases are ordered by name; otherwise they
	// are ordered by ID.
	NamePrefix string
	Owner      string
	Labels     map[string]string
	// IDs selects up to 1,000 leases by ID; if it is empty, all leases match. It cannot be combined
	// with NamePrefix. The cost depends only on the number of IDs, not on the total number of
	// leases.
	IDs []lease.ID
	// Keys requests the attached keys as well.
	Keys bool
}
