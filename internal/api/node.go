package api

import (
	"context"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// Node is the part of the member that all APIs use. It is safe for concurrent use.
type Node interface {
	// Propose returns when c has been applied, can no longer be applied, or has an unknown outcome.
	// In the last two cases, the error comes from this package, package replica, or the context. If
	// the command itself fails, the error is in Result.Err.
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, error)
	// View returns the newest applied state.
	View() *fsm.View
	// Inspect calls f on the goroutine that owns the lessor. The read is linearizable. f must be
	// quick, must not block, and must copy whatever it keeps. If Inspect returns an error, f may
	// still be called later, so the caller must not read what f writes.
	Inspect(ctx context.Context, f func(*lease.Lessor)) error
	// InspectHere is Inspect without contacting the leader. f sees the state that this member has
	// applied, up to index.
	InspectHere(ctx context.Context, f func(l *lease.Lessor, index uint64)) error
	// Watches returns the hub of events. It always returns the same hub.
	Watches() *watch.Hub[*Event]
	// AccessChanged returns a channel that is closed at the next change to users or roles. An open
	// stream gets the channel first and then checks its permissions in the current view. It repeats
	// both when the channel is closed.
	AccessChanged() <-chan struct{}
}

// Renewed receives the outcome of a renewal. The core calls its methods on its own goroutine, so
// they must not block.
type Renewed interface {
	Renewed(id lease.ID, ttl lease.TTL, err error)
	// Holder returns the caller, or nil if the caller's permission has already been checked.
	// Otherwise the core checks it when it accepts the renewal, and returns ErrUndecided if the
	// check would take too long.
	Holder() *access.Caller
}
