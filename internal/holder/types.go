package holder

import "leasehold.dev/lease"

// instant is a time on the holder's clock. The holder rounds it down, which never makes a lease
// valid for longer.
type instant = lease.Instant

// Config configures a Set.
type Config struct {
	// Drift is the maximum relative difference between the rates of the holder's and the lessor's
	// clocks; 0 means 1e-3, a negative value none.
	Drift float64
	// Margin is additionally subtracted from each validity.
	Margin lease.TTL
	// Gather is how early a renewal may be made, to be sent with others; 1/144 of the TTL of the
	// lease that is due, if that is longer.
	Gather lease.TTL
	// RenewAfter is the fraction of its TTL after which a lease is renewed; 0 means a third.
	RenewAfter float64
	// First is how long after Sent a lease is renewed for the first time, unless it is due sooner;
	// if 0, it is renewed when it is due.
	First lease.TTL
}

const defaultDrift = 1e-3

// Status is how far the holder can rely on a lease.
type Status uint8

// A lease goes through the statuses in this order. Only from Jeopardy can it return to OK.
const (
	// OK means that the lease is valid.
	OK Status = iota + 1
	// Jeopardy means that the lease's validity has ended, and that it may still be alive.
	Jeopardy
	// Ended means that the lease is no longer held, forever.
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

// Reason is why a lease has ended.
type Reason uint8

// The reasons.
const (
	// Lost means that the lessor reported that the lease is gone.
	Lost Reason = iota + 1
	// Expired means that no renewal was acknowledged in time.
	Expired
)

// State is the state of a lease, as far as the holder knows it.
type State struct {
	Status Status
	// Reason is set if Status is Ended.
	Reason Reason
	// ValidUntil is the first instant at which the holder must not rely on the lease.
	ValidUntil lease.Instant
}

// Held describes a granted lease.
type Held struct {
	ID lease.ID
	// Token is sent with every renewal, so that none can apply to another incarnation of the ID.
	Token lease.Token
	TTL   lease.TTL
	// Grace is how long after its validity the lease stays in jeopardy.
	Grace lease.TTL
	// Sent is a time before the grant was sent. It is negative if the clock started later.
	Sent lease.Instant
	// Spent is how much of the TTL had passed by then, for a lease that existed before.
	Spent lease.TTL
}

// Ref is a lease to renew.
type Ref struct {
	ID    lease.ID
	Token lease.Token
}

// Batch is a message with renewals: either of leases, which join groups if the lessor has any, or
// of groups. It is based on the time of the last Advance, so it must be sent after that, and after
// every earlier batch.
type Batch struct {
	// Seq is in the answers. It is higher than in every earlier batch.
	Seq    uint64
	Leases []Ref
	// Groups must be renewed after the leases in Leave have left their groups.
	Groups []lease.GroupID
	Leave  []lease.ID
	// Waited is the longest time for which a lease of the batch has waited for the answer to an
	// earlier one, or 0. If it is long, the stream may be broken.
	Waited lease.TTL
	// Repeated is the number of leases whose last attempt failed or is unanswered.
	Repeated int
}

// Change is a change of a lease's state.
type Change struct {
	ID lease.ID
	State
}
