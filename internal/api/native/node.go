package native

import (
	"context"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// Proposer replicates commands.
type Proposer interface {
	// Propose returns once c is applied, or will not be, or its outcome is not
	// known: then the error is one of package api's, replica's or the context's. The
	// result's own Err is the command's refusal.
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, error)
	// ProposeAll is Propose for many commands, each with an outcome of its own, in
	// their order. They do not make the state grow.
	ProposeAll(ctx context.Context, cs []fsm.Command) []Outcome
}

// Outcome is what Propose returns.
type Outcome struct {
	Result fsm.Result
	Err    error
}

// Inspector reads the state, linearizably.
type Inspector interface {
	// View returns the newest applied state.
	View() *fsm.View
	// Inspect calls f on the goroutine that owns the lessor: f must be quick,
	// must not block, and must copy what it takes out.
	Inspect(ctx context.Context, f func(*lease.Lessor)) error
	// InspectLeases is Inspect with what the leader says of some leases: how long
	// each will certainly live on, and whether it is there at all. Only the leader
	// knows that. What f sees of the rest is this member's state, which is as new or
	// newer.
	InspectLeases(
		ctx context.Context, ids []lease.ID, f func(*lease.Lessor, []replica.Left),
	) error
}

// Renewed receives the outcome of a renewal. It is called on the core's
// goroutine and must not block.
type Renewed interface {
	Renewed(id lease.ID, ttl lease.TTL, err error)
}

// Renewal asks that a lease be renewed. Token is that which the holder has, 0 if he does
// not say; To is told the outcome.
type Renewal struct {
	ID    lease.ID
	Token lease.Token
	To    Renewed
}

// Renewer renews leases.
type Renewer interface {
	// RenewAll returns at once, and each To is called exactly once, possibly before
	// RenewAll returns. An error of RenewAll means that none ever is.
	RenewAll(list []Renewal) error
}

// Submission is one request that is left for the core.
type Submission struct {
	// Command is proposed; nil asks for a confirm round, after which a View is no older
	// than any write that was acknowledged before.
	Command fsm.Command
	// To is told the outcome.
	To Answered
}

// Answered receives the outcome of a Submission: that of Propose, or, of a confirm
// round, its error. It is called on the core's goroutine and must not block.
type Answered interface {
	Answered(res fsm.Result, err error)
}

// Submitter takes many requests at once.
type Submitter interface {
	// Submit returns at once, and each To is called exactly once, possibly before
	// Submit returns. Commands are applied in the order in which they are submitted.
	Submit(list []Submission)
}

// Watchable has a hub of events.
type Watchable interface {
	// Watches returns the hub; always the same one.
	Watches() *watch.Hub[*api.Event]
}

// leaseNode is what the lease service needs of the member.
type leaseNode interface {
	Proposer
	Inspector
	Renewer
}

// Node is the member that the services speak for. It is safe for concurrent use.
type Node interface {
	leaseNode
	Submitter
	Watchable
}
