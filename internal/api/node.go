package api

import (
	"context"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// Node is the member as all APIs see it. It is safe for concurrent use.
type Node interface {
	// Propose returns once c has been applied, will never be applied, or has an unknown outcome. In
	// the latter cases, the error is one of this package, of package replica, or of the context. If
	// the command itself fails, the error is in Result.Err.
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, error)
	// View returns the newest applied state.
	View() *fsm.View
	// Inspect calls f, linearizably, on the goroutine that owns the lessor. f must be quick, must
	// not block, and must copy what it keeps. If Inspect returns an error, f may still be called
	// later, so the caller must not read what f writes.
	Inspect(ctx context.Context, f func(*lease.Lessor)) error
	// InspectHere is Inspect without a query to the leader: f sees the state that this member has
	// applied, up to index.
	InspectHere(ctx context.Context, f func(l *lease.Lessor, index uint64)) error
	// Watches returns the hub of events. It is always the same one.
	Watches() *watch.Hub[*Event]
	// AccessChanged returns a channel that is closed when users or roles change next. An open
	// stream gets the channel first, then checks its permissions in the current view, and does so
	// again when the channel is closed.
	AccessChanged() <-chan struct{}
}

// Renewed receives the outcome of a renewal. Its methods are called on the core's goroutine and
// must not block.
type Renewed interface {
	Renewed(id lease.ID, ttl lease.TTL, err error)
	// Holder returns the caller, or nil if its permission has been checked already. Otherwise the
	// core checks it when it accepts the renewal, and returns ErrUndecided if that would take too
	// long.
	Holder() *access.Caller
}
