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

// Outcome is the outcome of a proposed command.
type Outcome struct {
	Result fsm.Result
	Err    error
}

// RenewedAll receives the outcomes of Renewals. It is called on the core's goroutine and must not
// block.
type RenewedAll interface {
	// RenewedTogether reports that the leases whose TTLs are now set are renewed. It is called at
	// most once.
	RenewedTogether()
	// RenewedGroups reports that the requests about groups have their outcomes. It is called once,
	// if there were any.
	RenewedGroups()
	// RenewedOne reports the outcome of one of the other leases, by index.
	RenewedOne(place int, ttl lease.TTL, err error)
}

// Submission is a request to the core.
type Submission struct {
	// Command is proposed. It names its caller itself (fsm.By). Nil requests a confirm round, after
	// which View includes every write that was acknowledged before the Submission.
	Command fsm.Command
	// Fill, with a confirm round, requests permission to cache the result.
	Fill *replica.Fill
	// To receives the outcome.
	To Answered
	// Trace is the request's trace, or nil.
	Trace Traced
}

// Answered receives the outcome of a Submission. It is called on the core's goroutine and must not
// block.
type Answered interface {
	Answered(res fsm.Result, err error)
}

// Late is an Answered that is also called, before Answered, if its Submission was slow and has no
// Trace. It must not block.
type Late interface {
	Late(of Traced)
}

// SlowCaches are the caches that have delayed writes for a long time. It is immutable.
type SlowCaches struct{ List []SlowCache }

// SlowCache is a cache that delays writes.
type SlowCache struct {
	// Lease is the lease of the cache as it was when the cache became slow.
	Lease lease.Info
	// Since is when it began to delay writes, by the clock of Now.
	Since lease.Instant
}

// Node is the member as seen by the services. It is safe for concurrent use.
type Node interface {
	api.Node
	// ProposeAll proposes many commands, which must not make the state grow, and returns an outcome
	// for each, in their order.
	ProposeAll(ctx context.Context, cs []fsm.Command) []Outcome
	// Submit submits requests without blocking. Each To is called exactly once, possibly before
	// Submit returns. Commands are applied in the order in which they are submitted. Submit does
	// not keep the list.
	Submit(list []Submission)
	// InspectLeases is Inspect with the leader's answer about some leases: whether each exists, and
	// how long it will last at least, which only the leader knows. The state that f sees is that of
	// this member, which is at least as new as the answer.
	InspectLeases(
		ctx context.Context, ids []lease.ID, f func(*lease.Lessor, []replica.Left),
	) error
	// RenewAll does not block. The Owner of its argument is a RenewedAll, which is called for each
	// lease exactly once, possibly before RenewAll returns. If RenewAll returns an error, it is not
	// called.
	RenewAll(r *replica.Renewals) error
	// EndKeeper reports the end of a stream that has used this keeper.
	EndKeeper(by replica.Keeper)
	// OnLeaseNews registers f until stop is called. The member calls f after the view has new lease
	// events or silences, or SlowCaches has changed. f is not called on the core's goroutine. It
	// must not block.
	OnLeaseNews(f func()) (stop func())
	// Now returns the current instant by the clock of fsm.Silence.
	Now() lease.Instant
	// Uses returns each principal's use of the state, in any order. Only the f of an Inspect may
	// call it.
	Uses() []fsm.Use
	// Holds returns the ranges that a lease holds for caches. Only the f of an Inspect may call it.
	// It must not modify the result.
	Holds(id lease.ID) []keyrange.Range
	// SlowCaches returns the slow caches that this member knows of, or nil if there have been none.
	// OnLeaseNews announces changes.
	SlowCaches() *SlowCaches
	// OpenCache reports the contents of a cache to the leader. From now on, to is the only receiver
	// of its invalidations.
	OpenCache(o replica.OpenCache, to Cache) error
	// AckCache acknowledges invalidations to the leader. It has no effect if the cache has been
	// opened elsewhere since.
	AckCache(a replica.AckCache, from Cache)
	// CloseCache closes a cache that OpenCache opened.
	CloseCache(of fsm.Holding, to Cache)
	// WaitQueues returns the wait queues. They are always the same.
	WaitQueues() *waitqueue.Queues
	// Leader returns the ID of the leader, or 0 if none is known, and a channel that is closed when
	// that changes.
	Leader() (id uint64, changed <-chan struct{})
	// Outage describes why there is no leader. It returns "" if one is known.
	Outage() string
}
