package client

import (
	"context"
	"time"

	"leasehold.dev/lease"
)

// Hold is something that depends on a lease and has at most one holder: a lock, leadership in an
// election, the role of the primary, a pool ID, a queue item, or a group membership. They all have
// these methods, with the same meanings, so that a program can treat them alike.
type Hold interface {
	// Token returns the fencing token. Every later holder has a higher one.
	Token() lease.Token
	// ValidUntil returns the time by which the program must stop unless a renewal succeeds first.
	// It is in the past if Err is not nil.
	ValidUntil() time.Time
	// Context returns a context that is canceled when the program must stop, before another holder
	// can begin. Its cause is the reason, and wraps [context.Canceled].
	Context() context.Context
	// Err returns nil while the hold is valid according to the clock. After that it returns the
	// reason why the hold ended.
	Err() error
	// Release gives up the hold. The hold ends for the program immediately, even if Release fails.
	// If ctx ends before the cluster answers, Release returns the cause and continues in the
	// background; [Client.Close] waits for it.
	Release(ctx context.Context) error
}
