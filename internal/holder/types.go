package holder

import "leasehold.dev/lease"

// instant is a time on the holder's clock. Rounding it down never makes a lease valid for longer.
type instant = lease.Instant

// Config configures a Set.
type Config struct {
	// Drift is the maximum relative difference between the clock rates of the holder and the
	// lessor. 0 means 1e-3. A negative value means no drift.
	Drift float64
	// Margin is subtracted from the validity of each lease, in addition to the drift.
	Margin lease.TTL
	// Gather is how much earlier a lease can be renewed in order to share a batch with others. The
	// minimum is 1/144 of the TTL of the lease that is due.
	Gather lease.TTL
	// RenewAfter is the fraction of its TTL after which a lease is renewed. 0 means a third.
	RenewAfter float64
	// First is how long after Sent a lease is renewed for the first time, unless it is due sooner.
	// 0 means that it is renewed when it is due.
	First lease.TTL
}

const defaultDrift = 1e-3

// Status says whether the holder can rely on a lease.
type Status uint8

// A lease goes through the statuses in this order, except that it can return from Jeopardy to OK.
const (
	// OK means that the lease is valid.
	OK Status = iota + 1
	// Jeopardy means that the lease is no longer valid, but may still be alive.
	Jeopardy
	// Ended means that the lease is no longer held. This is permanent.
	Ended
)

// String returns the status as text.
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Jeopardy:
		return "in jeopardy"
	case Ended:
		return "ended"
	default:
		return "unknown"
	}
}

// Reason says why a lease has ended.
type Reason uint8

// The reasons why a lease ends.
const (
	// Lost means that the lessor reported the lease as gone.
	Lost Reason = iota + 1
	// Expired means that no renewal was acknowledged in time.
	Expired
)

// State is the state of a lease, as far as the holder knows.
type State struct {
	Status Status
	// Reason is set if Status is Ended.
	Reason Reason
	// ValidUntil is the instant from which the holder must no longer rely on the lease.
	ValidUntil lease.Instant
}

// Held describes a granted lease.
type Held struct {
	ID lease.ID
	// Token is sent with every renewal, so that a renewal cannot apply to another incarnation of
	// the ID.
	Token lease.Token
	TTL   lease.TTL
	// Grace is how long the lease remains in jeopardy after its validity has ended.
	Grace lease.TTL
	// Sent is an instant before the grant was sent. It is negative if the clock started after that.
	Sent lease.Instant
	// Spent is how much of the TTL had already passed at Sent, if the lease existed before.
	Spent lease.TTL
}

// Ref is a lease to renew.
type Ref struct {
	ID    lease.ID
	Token lease.Token
}

// Batch is a message with renewals. It renews either leases, which the lessor can then put into
// groups, or groups. It is based on the time of the last Advance, so it must be sent after that
// Advance, and after all earlier batches.
type Batch struct {
	// Seq identifies the batch in answers. It increases from batch to batch.
	Seq    uint64
	Leases []Ref
	// Groups must be renewed only after the leases in Leave have left their groups.
	Groups []lease.GroupID
	Leave  []lease.ID
	// Waited is the longest time that any lease of the batch has been waiting for the answer to an
	// earlier renewal, or 0 if none has. If it is long, the stream may be broken.
	Waited lease.TTL
	// Repeated is the number of leases whose last attempt failed or has not been answered.
	Repeated int
}

// Change is a change in the state of a lease.
type Change struct {
	ID lease.ID
	State
}
