package client

import (
	"context"
	"time"

	"leasehold.dev/lease"
)

// Hold depends on a lease and has at most one holder. It is a lock, the lead of an election, the
// role of the primary, an ID from a pool, an item of a queue, or a membership in a group. All of
// them have these methods, with the same meanings, so that a program can treat them alike.
type Hold interface {
	// Token is the fencing token: every later holder has a higher one.
	Token() lease.Token
	// ValidUntil is when the program must stop, unless a renewal succeeds before. It is in the past
	// if Err is not nil.
	ValidUntil() time.Time
	// Context ends when the program must stop, before another holder can begin. Its cause is the
	// reason, and wraps [context.Canceled].
	Context() context.Context
	// Err is nil while the program holds it, by the clock, and then the reason why it does not.
	Err() error
	// Release gives up the hold. The hold ends for the program at once, even if Release fails. If
	// ctx ends before the cluster answers, Release returns the cause and continues in the
	// background; [Client.Close] waits for it.
	Release(ctx context.Context) error
}
