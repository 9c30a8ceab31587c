package holder

import "leasehold.dev/lease"

// instant is a point on the holder's clock. The holder rounds it down, which never
// makes a lease valid for longer.
type instant = lease.Instant

// Config is what a Set needs to know.
type Config struct {
	// Drift bounds the difference between the rates of the holder's clock and of the
	// lessor's; 1e-3 if 0, none if negative.
	Drift float64
	// Margin is taken off each validity besides.
	Margin lease.TTL
	// Gather is by how much a renewal may be made too early, to go along with others; the
	// 144th part of the TTL of the lease that is due, if that is longer.
	Gather lease.TTL
	// RenewAfter is the share of its TTL after which a lease is renewed; a third if 0.
	RenewAfter float64
}

const defaultDrift = 1e-3

// Status says how far a lease can be relied on.
type Status uint8

// The states of a lease, in the order in which it goes through them; only from
// Jeopardy it may go back.
const (
	// OK means that the lease is valid.
	OK Status = iota + 1
	// Jeopardy means that the lease is past its valid until, and not known to be gone.
	Jeopardy
	// Ended means that the lease is held no more, for ever.
	Ended
)

// String is the status for people.
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
	// Lost means that the lessor said that the lease is gone.
	Lost Reason = iota + 1
	// Expired means that no renewal was acknowledged in time.
	Expired
)

// State is what a holder knows of a lease.
type State struct {
	Status Status
	// Reason is set if Status is Ended.
	Reason Reason
	// ValidUntil is the first instant at which the holder must not rely on the lease.
	ValidUntil lease.Instant
}

// Held is a lease that was granted.
type Held struct {
	ID lease.ID
	// Token goes with every renewal, so that none hits another incarnation of the ID.
	Token lease.Token
	TTL   lease.TTL
	// Grace is for how long after its valid until the lease stays in jeopardy.
	Grace lease.TTL
	// Sent is from before the grant was sent. It is below 0 if the clock began later.
	Sent lease.Instant
	// Spent is how much of the TTL had passed then, of a lease that was there before.
	Spent lease.TTL
}

// Ref is a lease to be renewed.
type Ref struct {
	ID    lease.ID
	Token lease.Token
}

// Batch is renewals to be sent at once, in one message: either of leases, which join groups if the
// lessor has any, or of groups. It is as of the instant that Advance last told, so it must be sent
// after that, and after every earlier batch.
type Batch struct {
	// Seq comes back with the answers. It is above that of every earlier batch.
	Seq    uint64
	Leases []Ref
	// Groups are to be renewed after the leases Leave have left the groups that they are in.
	Groups []lease.GroupID
	Leave  []lease.ID
	// Waited is the longest time for which a lease of the batch has waited for the
	// answer to an earlier one; 0 if none has. The stream may be broken.
	Waited lease.TTL
	// Repeated is how many of the leases were tried before and not renewed.
	Repeated int
}

// Change is a lease whose state has changed.
type Change struct {
	ID lease.ID
	State
}
