package api

import (
	"context"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// Proposer replicates commands.
type Proposer interface {
	// Propose returns once c has been applied, will never be, or has an unknown outcome. In the
	// latter cases, the error is one of this package, of package replica, or of the context. If the
	// command itself fails, the error is in Result.Err.
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, error)
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

// Watchable has a hub of events.
type Watchable interface {
	// Watches returns the hub; always the same one.
	Watches() *watch.Hub[*Event]
}

// Guarded signals changes of users and roles.
type Guarded interface {
	// AccessChanged returns a channel that is closed at the next change. An open stream gets the
	// channel first, then checks its permissions in the current view, and does so again when the
	// channel is closed.
	AccessChanged() <-chan struct{}
}
