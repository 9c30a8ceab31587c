package api

import (
	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/lease"
)

// This file converts leases between leasehold.v1 and the engine.

// GrantTerms returns the terms requested by a grant. The caller sets the fields that depend on the
// server or the client's identity: the principal, the secret, and the ID and TTL if the request
// does not specify them.
func GrantTerms(r *pb.GrantRequest) lease.Terms {
	return lease.Terms{
		ID: lease.ID(r.Id), TTL: lease.TTL(r.TtlMs),
		Name: r.Name, Owner: r.Owner, RequestID: r.RequestId, Labels: r.Labels,
		LockDelay: lease.TTL(r.LockDelayMs), KeepKeys: r.AtExpiry == pb.AtExpiry_AT_EXPIRY_KEEP,
	}
}

// LeaseMessage returns the leasehold.v1 message for a lease. The message contains neither the
// remaining time nor the keys, and never the hash of the secret.
func LeaseMessage(i *lease.Info) *pb.Lease {
	m := new(pb.Lease)
	FillLease(m, i)
	return m
}

// FillLease is LeaseMessage with an empty message provided by the caller.
func FillLease(m *pb.Lease, i *lease.Info) {
	m.Id, m.Token = int64(i.ID), uint64(i.Token)
	m.TtlMs, m.LockDelayMs = int64(i.TTL), int64(i.LockDelay)
	m.Name, m.Owner, m.Labels = i.Name, i.Owner, i.Labels
	m.Delayed, m.Bound, m.Principal = i.Delayed, i.Bound, i.Principal
	m.AtExpiry = pb.AtExpiry_AT_EXPIRY_DELETE
	if i.KeepKeys {
		m.AtExpiry = pb.AtExpiry_AT_EXPIRY_KEEP
	}
}
