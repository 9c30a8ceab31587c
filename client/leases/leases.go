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

// Ref refers to a lease by its ID, its Name, or both (one lease must then have both). Describe,
// Resume and CheckLease take either ID or Name.
type Ref struct {
	ID lease.ID
	// Token, if not 0, is the token that the lease must still have.
	Token lease.Token
	// Name refers to the lease that has this name when the request is applied. Without a Token
	// that may be another lease than the program expects.
	Name string
}

// String returns the reference in readable form.
func (r Ref) String() string {
	if r.Name != "" {
		return fmt.Sprintf("lease %q", r.Name)
	}
	return fmt.Sprintf("lease %016x", r.ID)
}

// Renew returns the operation that restarts the lease's TTL when the transaction is applied. It
// does not change how long the client considers a lease valid: the client renews the leases that it
// keeps alive. A reference without an ID needs a Token: otherwise a holder could renew the lease of
// its successor and mistake it for its own.
func (r Ref) Renew() store.Op {
	return message.Renew{LeaseRef: message.Ref(r.ID, r.Token, r.Name)}
}

// Revoke returns the operation that ends the lease and deletes its keys. If this client keeps the
// lease alive, call client.Lease.Close first: the program must not rely on the lease any more.
func (r Ref) Revoke() store.Op {
	return message.Revoke{LeaseRef: message.Ref(r.ID, r.Token, r.Name)}
}

// NewID returns a random ID for a lease, for grants in transactions, which need one.
func NewID() lease.ID {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return lease.ID(max(1, binary.BigEndian.Uint64(b[:])>>1))
}

// Info is the cluster's description of a lease.
type Info struct {
	ID lease.ID
	// Token is the fencing token. It increases with every grant, hand-over and resume.
	Token lease.Token
	TTL   time.Duration
	// Remaining is a lower bound on the remaining time of the lease, as of the answer. The holder
	// of the lease uses client.Lease.State instead.
	Remaining time.Duration
	// Name is held by at most one live lease.
	Name, Owner string
	// Principal is the user that the lease belongs to, if it was granted under access control.
	Principal string
	Labels    map[string]string
	LockDelay time.Duration
	// KeepKeys is true if its keys stay, detached, when the lease expires.
	KeepKeys bool
	// Delayed is true if the lease has expired, and its name and keys stay during its lock delay.
	Delayed bool
	// Bound is true if a Put with a TTL created the lease: it accepts no other key, and ends when
	// its key is deleted or moves to another lease.
	Bound bool
	// Keys are the attached keys, if requested.
	Keys []string
	// KeyCount is the number of attached keys. Describe and List set it.
	KeyCount int64
	// Holds are the ranges that the holder may cache. Describe and List set it.
	Holds []store.KeyRange
}

// Filter selects the leases to list: those that match every field that is set.
type Filter struct {
	// NamePrefix is a prefix of the name. With it leases come in the order of their names,
	// otherwise in the order of their IDs.
	NamePrefix string
	Owner      string
	Labels     map[string]string
	// IDs lists up to 1,000 leases by ID; empty for all. It excludes NamePrefix. The cost grows
	// with the listed leases only, not with all leases.
	IDs []lease.ID
	// Keys requests the keys, too.
	Keys bool
}
