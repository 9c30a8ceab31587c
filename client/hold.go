package client

import (
	"context"
	"time"

	"leasehold.dev/lease"
)

// Hold is something that rests on a lease and that at most one holder has: a lock, the lead of an
// election, the role of the primary, an ID of a pool, an item of a queue, a place among the
// members of a group. All of them have these methods, with these meanings, so that a program can
// treat them alike.
type Hold interface {
	// Token is the fencing token: every later holder has a higher one.
	Token() lease.Token
	// ValidUntil is when the program must stop, if no renewal succeeds before. It is past when
	// Err is not nil.
	ValidUntil() time.Time
	// Context ends when the program must stop, before another holder can begin. Its cause says
	// why, and wraps [context.Canceled].
	Context() context.Context
	// Err is nil as long as the program holds it, by the clock, and then says why it does not.
	Err() error
	// Release gives up what is held. For the program the hold ends at once, even if Release
	// fails. If ctx ends before the cluster answers, Release returns the reason and continues
	// in the background; [Client.Close] waits for it.
	Release(ctx context.Context) error
}
