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
	// Context ends when the program must stop, before anybody else can hold. Its cause says why,
	// and is [context.Canceled] too.
	Context() context.Context
	// Err is nil as long as the program holds, by the clock, and then the reason why it does not.
	Err() error
	// Release gives up what is held. For the program it has ended at once, whatever the error is.
	Release(ctx context.Context) error
}
