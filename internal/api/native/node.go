package native

import (
	"context"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// Proposer replicates commands, also many at once.
type Proposer interface {
	api.Proposer
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
	// must not block, and must copy what it takes out. It may yet be called when Inspect has
	// returned an error: what it writes is not to be read then.
	Inspect(ctx context.Context, f func(*lease.Lessor)) error
	// InspectLeases is Inspect with what the leader says of some leases: how long
	// each will certainly live on, and whether it is there at all. Only the leader
	// knows that. What f sees of the rest is this member's state, which is as new or
	// newer.
	InspectLeases(
		ctx context.Context, ids []lease.ID, f func(*lease.Lessor, []replica.Left),
	) error
}

// Renewer renews leases.
type Renewer interface {
	// RenewAll returns at once. The Owner of what it is given is a RenewedAll, which is told of
	// each lease exactly once, possibly before RenewAll returns. An error of RenewAll
	// means that it is told of none.
	RenewAll(r *replica.Renewals) error
	// EndKeeper says that a stream has ended, which has drawn this keeper.
	EndKeeper(by replica.Keeper)
}

// RenewedAll receives the outcomes of Renewals. It is called on the core's goroutine and
// must not block.
type RenewedAll interface {
	// RenewedTogether says that the leases whose TTLs are now set are renewed. It is called
	// once at most.
	RenewedTogether()
	// RenewedGroups says that what was asked about groups is answered. It is called once, if
	// anything was.
	RenewedGroups()
	// RenewedOne tells the outcome of one of the others, by its place.
	RenewedOne(place int, ttl lease.TTL, err error)
}

// Submission is one request that is left for the core.
type Submission struct {
	// Command is proposed as it is: on whose behalf, it says itself (see fsm.By). Nil asks for a
	// confirm round, after which a View is no older than any write that was acknowledged before.
	Command fsm.Command
	// Fill asks, with a confirm round, that the reader may cache what it reads.
	Fill *replica.Fill
	// To is told the outcome.
	To Answered
	// Trace is that of the request; nil for one of which no spans are made.
	Trace Traced
}

// Answered receives the outcome of a Submission: that of Propose, or, of a confirm
// round, its error. It is called on the core's goroutine and must not block.
type Answered interface {
	Answered(res fsm.Result, err error)
}

// Late is an Answered that is told, before it is answered, that its Submission took long though it
// has no Trace. It must not block either.
type Late interface {
	Late(of Traced)
}

// LeaseWatchable tells of events of leases. They are in the View.
type LeaseWatchable interface {
	// OnLeaseNews has f called after the view has new events of leases, or silences, or other
	// caches are slow, until stop is called. It is called on one of the member's goroutines,
	// not the core's, and must not block.
	OnLeaseNews(f func()) (stop func())
	// Now returns the present instant by the clock of fsm.Silence.
	Now() lease.Instant
	// InspectHere is Inspect without asking the leader: what f sees is what this
	// member has applied, up to an index.
	InspectHere(ctx context.Context, f func(l *lease.Lessor, index uint64)) error
}

// Holding tells what leases hold for caches, which of these keep writes waiting, and how much of
// the state is whose.
type Holding interface {
	// Uses returns how much of the state is whose, in no order. Only an f of Inspector may call it.
	Uses() []fsm.Use
	// Holds returns what a lease holds. Only an f of Inspector may call it, and must not
	// change it.
	Holds(id lease.ID) []keyrange.Range
	// SlowCaches returns the caches that are slow now, as far as this member knows; nil if
	// it never knew of one. OnLeaseNews says when there are others.
	SlowCaches() *SlowCaches
}

// SlowCaches are caches for which writes have been waiting for long. It is immutable: there is
// another if they change.
type SlowCaches struct{ List []SlowCache }

// SlowCache is a cache for which writes wait.
type SlowCache struct {
	// Lease is that of the cache, as it was when it became slow.
	Lease lease.Info
	// Since is from when it has kept writes waiting, by the clock of Now.
	Since lease.Instant
}

// leaseNode is what the lease service needs of the member.
type leaseNode interface {
	Proposer
	Inspector
	Renewer
	LeaseWatchable
	Holding
	api.Guarded
}

// Node is the member that the services speak for. It is safe for concurrent use.
type Node interface {
	leaseNode
	Cacher
	api.Watchable
	// Submit returns at once, and each To is called exactly once, possibly before
	// Submit returns, and let go of then. Commands are applied in the order in which they are
	// submitted. The list is the caller's again when Submit returns.
	Submit(list []Submission)
	// Leader returns the ID of the member that leads, 0 if none is known to, and what is
	// closed when that has changed.
	Leader() (id uint64, changed <-chan struct{})
	// Outage says why the cluster does nothing now: empty if a leader is known.
	Outage() string
	// WaitQueues returns the wait queues in which somebody waits; always the same ones.
	WaitQueues() *waitqueue.Queues
}
