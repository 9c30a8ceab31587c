package message

import (
	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/lease"
)

// Compare holds a condition's message. The Compare type of package store embeds it.
type Compare struct{ Message *pb.Compare }

// Renew and Revoke are the lease operations of package leases.
type (
	Renew  struct{ *pb.LeaseRef }
	Revoke struct{ *pb.LeaseRef }
)

// Operation implements store.Op.
func (Renew) Operation() {}

// Operation implements store.Op.
func (Revoke) Operation() {}

// Ref returns the message for a lease reference.
func Ref(id lease.ID, token lease.Token, name string) *pb.LeaseRef {
	return &pb.LeaseRef{Id: int64(id), Token: uint64(token), Name: name}
}
