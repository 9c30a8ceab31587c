// Package api holds what the wire APIs share: the one table from the
// service's errors to those that clients see.
package api

import "errors"

// These errors are the member's own: they say why a request has no outcome,
// or that its outcome is not known. All of them may be retried.
var (
	// ErrNoLeader means that no leader is known; nothing was done.
	ErrNoLeader = errors.New("member: no leader")
	// ErrLeaderChanged means that leadership was lost with the request under way; it may or may not take effect.
	ErrLeaderChanged = errors.New("member: leader changed")
	// ErrTooManyRequests means that the queue is full; nothing was done.
	ErrTooManyRequests = errors.New("member: too many requests")
	// ErrStopped means that the member is stopping.
	ErrStopped = errors.New("member: stopped")
	// ErrTimeout means that the request was not done in time; it may still take effect.
	ErrTimeout = errors.New("member: request timed out")
)
