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
	// Propose returns once c is applied, or will not be, or its outcome is not
	// known: then the error is one of this package's, replica's or the context's. The
	// result's own Err is the command's refusal.
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, error)
}

// Renewed receives the outcome of a renewal. It is called on the core's
// goroutine and must not block.
type Renewed interface {
	Renewed(id lease.ID, ttl lease.TTL, err error)
	// Holder returns who renews, nil if that was looked at. The core looks whether it may hold the
	// lease when it takes the renewal, and says ErrUndecided if that needs a longer look.
	Holder() *access.Caller
}

// Watchable has a hub of events.
type Watchable interface {
	// Watches returns the hub; always the same one.
	Watches() *watch.Hub[*Event]
}

// Guarded tells when users or roles change.
type Guarded interface {
	// AccessChanged returns a channel that is closed at the next change. A stream that is open
	// takes the channel, then the view in which it is decided whether it may go on, and decides
	// again when the channel is closed.
	AccessChanged() <-chan struct{}
}
