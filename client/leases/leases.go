package leases

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// Ref names a lease by its ID, by its Name, or by both: then one lease must have both.
// Describe, Resume and CheckToken take one of the two.
type Ref struct {
	ID lease.ID
	// Token, if it is not 0, is the one that the lease must have still.
	Token lease.Token
	// Name stands for the lease that has it when the request is applied: without a Token for
	// whichever that is then, also if it is not the one that the program has in mind.
	Name string
}

// String is the name for people.
func (r Ref) String() string {
	if r.Name != "" {
		return fmt.Sprintf("lease %q", r.Name)
	}
	return fmt.Sprintf("lease %016x", r.ID)
}

// Message returns the message of leasehold.v1.
func (r Ref) Message() *pb.LeaseRef {
	return &pb.LeaseRef{Id: int64(r.ID), Token: uint64(r.Token), Name: r.Name}
}

// Renew is the operation that starts the lease's TTL anew when the transaction is applied. The
// client does not count on it: it renews the leases that it keeps alive itself. A reference
// without an ID needs a Token: otherwise a holder could renew the lease of its successor, and take
// that for its own.
func (r Ref) Renew() store.Op { return renewOp(r) }

// Revoke is the operation that ends the lease, with its keys. The program must not rely on the
// lease any more: it calls client.Lease.Close first if this client keeps the lease alive.
func (r Ref) Revoke() store.Op { return revokeOp(r) }

type (
	renewOp  Ref
	revokeOp Ref
)

// Op implements [store.Op].
func (r renewOp) Op() *pb.Op { return &pb.Op{Op: &pb.Op_Renew{Renew: Ref(r).Message()}} }

// Op implements [store.Op].
func (r revokeOp) Op() *pb.Op { return &pb.Op{Op: &pb.Op_Revoke{Revoke: Ref(r).Message()}} }

// NewID draws an ID for a lease whose ID must be known before it is granted.
func NewID() lease.ID {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return lease.ID(max(1, binary.BigEndian.Uint64(b[:])>>1))
}

// Info is what the cluster tells of a lease.
type Info struct {
	ID lease.ID
	// Token is the fencing token: it rises with every grant, hand-over and resume.
	Token lease.Token
	TTL   time.Duration
	// Remaining is for how long it would certainly live on when the cluster said so.
	// The holder of the lease asks client.Lease.State instead.
	Remaining time.Duration
	// Name is held by at most one live lease.
	Name, Owner string
	// Principal is the user that it belongs to, if it was granted under access control.
	Principal string
	Labels    map[string]string
	LockDelay time.Duration
	// KeepKeys says that its keys stay when it expires.
	KeepKeys bool
	// Delayed says that it has expired, and that its name and keys stay for its lock delay.
	Delayed bool
	// Bound says that it was made by a Put with a TTL: it takes no other key, and ends
	// when its key goes or moves.
	Bound bool
	// Keys are those attached, if they were asked for.
	Keys []string
	// KeyCount is how many there are; Describe and List tell it.
	KeyCount int64
	// Holds is what its holder may cache; Describe and List tell it.
	Holds []store.KeyRange
}

// Filter says which leases to list: those that meet all that is set.
type Filter struct {
	// NamePrefix is how the name begins; then leases come in the order of their names,
	// else in that of their IDs.
	NamePrefix string
	Owner      string
	Labels     map[string]string
	// IDs are those of the leases; empty for all. At most 1,000, and not together with NamePrefix.
	// It costs what these leases cost, not what all do.
	IDs []lease.ID
	// Keys asks for the keys, too.
	Keys bool
}
