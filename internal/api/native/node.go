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

// RenewedAll receives the outcomes of Renewals. The core calls its methods on its own goroutine, so
// they must not block.
type RenewedAll interface {
	// RenewedTogether reports that all leases whose TTL is set have been renewed. It is called at
	// most once.
	RenewedTogether()
	// RenewedGroups reports that the outcome of the group requests is available. It is called once
	// if there were any such requests.
	RenewedGroups()
	// RenewedOne reports the outcome for one of the other leases. place is its index.
	RenewedOne(place int, ttl lease.TTL, err error)
}

// Submission is a request to the core.
type Submission struct {
	// Command is the command to propose. It names its own caller (see fsm.By). If it is nil, the
	// Submission requests a confirm round. After the confirm round, View includes every write that
	// was acknowledged before the Submission.
	Command fsm.Command
	// Fill requests permission to cache the result of the confirm round. It may be nil.
	Fill *replica.Fill
	// To receives the outcome.
	To Answered
	// Trace is the request's trace, or nil.
	Trace Traced
}

// Answered receives the outcome of a Submission. The core calls it on its own goroutine, so it must
// not block.
type Answered interface {
	Answered(res fsm.Result, err error)
}

// Late is an Answered that is notified when its Submission is slow and has no Trace. In that case,
// Late is called before Answered. It must not block.
type Late interface {
	Late(of Traced)
}

// SlowCaches lists the caches that have delayed writes for a long time. It is immutable.
type SlowCaches struct{ List []SlowCache }

// SlowCache is a cache that is delaying writes.
type SlowCache struct {
	// Lease is a copy of the cache's lease from when the cache became slow.
	Lease lease.Info
	// Since is the instant at which the cache began to delay writes, as measured by Now.
	Since lease.Instant
}

// Node is the part of the member that the services use. It is safe for concurrent use.
type Node interface {
	api.Node
	// ProposeAll proposes many commands and returns an outcome for each, in the same order. The
	// commands must not increase the size of the state.
	ProposeAll(ctx context.Context, cs []fsm.Command) []Outcome
	// Submit submits requests without blocking. It calls each To exactly once, possibly before
	// Submit returns. Commands are applied in the order in which they are submitted. Submit does
	// not retain the list.
	Submit(list []Submission)
	// InspectLeases is Inspect with additional data from the leader about some leases: whether each
	// exists, and the minimum time that it has left. Only the leader has this data. f sees this
	// member's state, which is at least as new as the leader's data.
	InspectLeases(
		ctx context.Context, ids []lease.ID, f func(*lease.Lessor, []replica.Left),
	) error
	// RenewAll submits renewals without blocking. The Owner of r must be a RenewedAll. It receives
	// exactly one outcome for each lease, possibly before RenewAll returns. If RenewAll returns an
	// error, Owner is not called.
	RenewAll(r *replica.Renewals) error
	// EndKeeper reports that the stream that used this keeper has ended.
	EndKeeper(by replica.Keeper)
	// OnLeaseNews registers f until stop is called. The member calls f when the view has new lease
	// events or silences, or when SlowCaches has changed. It does not call f on the core's
	// goroutine. f must not block.
	OnLeaseNews(f func()) (stop func())
	// Now returns the current instant. It uses the same clock as fsm.Silence.
	Now() lease.Instant
	// Uses returns how much of the state each principal uses, in no particular order. It may be
	// called only from the f passed to Inspect.
	Uses() []fsm.Use
	// Holds returns the ranges that a lease holds for caches. It may be called only from the f
	// passed to Inspect. The caller must not modify the result.
	Holds(id lease.ID) []keyrange.Range
	// SlowCaches returns the slow caches known to this member. It returns nil if there have been
	// none. OnLeaseNews reports changes.
	SlowCaches() *SlowCaches
	// OpenCache reports the contents of a cache to the leader. Afterwards, only this Cache receives
	// the invalidations.
	OpenCache(o replica.OpenCache, to Cache) error
	// AckCache acknowledges invalidations to the leader. It has no effect if the cache has since
	// been opened elsewhere.
	AckCache(a replica.AckCache, from Cache)
	// CloseCache closes a cache opened by OpenCache.
	CloseCache(of fsm.Holding, to Cache)
	// WaitQueues returns the wait queues. It always returns the same Queues.
	WaitQueues() *waitqueue.Queues
	// Leader returns the ID of the leader, or 0 if none is known. It also returns a channel that is
	// closed when the leader changes.
	Leader() (id uint64, changed <-chan struct{})
	// Outage returns the reason why there is no leader, or "" if a leader is known.
	Outage() string
}
