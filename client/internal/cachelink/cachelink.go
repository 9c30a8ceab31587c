// Package cachelink is what package client has for package cache, and for no program: the call by
// which a cache stays in touch with the cluster. The client sets it when it is initialized.
package cachelink

import (
	"context"
	"time"

	"leasehold.dev/client/store"
	"leasehold.dev/internal/keyrange"
)

// Events is the side of a Link that has the copies. Its methods are called one at a time, but for
// Writing, and must not wait.
type Events interface {
	// Opening says that the cache is about to be opened on another stream, or anew: what is
	// answered from now on is not to be kept until it is Opened. It returns what the
	// cache has.
	Opening() []keyrange.Range
	// Opened says that the cluster knows what the cache has: what is answered in this term
	// may be kept. This is to be acknowledged.
	Opened(term uint64)
	// Invalidated says what to drop. When that is done, it is to be acknowledged.
	Invalidated(n Notice)
	// Writing says that this client is about to send a write which may touch these keys.
	// It may be called by any goroutine.
	Writing(list []keyrange.Range)
	// Refused says that the cluster does not take the cache, and why. It is asked
	// again if that may change.
	Refused(err error)
}

// Notice is an invalidation.
type Notice struct {
	Term, Seq uint64
	Drop      []keyrange.Range
}

// Ack acknowledges the invalidations of a term up to one, and says what the cache has
// dropped besides.
type Ack struct {
	Term, Seq uint64
	// Open is the term in which the cache was opened, 0 if it is not since Opening.
	Open    uint64
	Dropped []keyrange.Range
}

// Link keeps a cache in touch with the cluster, whatever becomes of members and streams.
type Link interface {
	// Ack tells what the cache has dropped. It is lost if the stream breaks; then the cluster
	// asks again. What it tells must not have been asked for again before.
	Ack(a Ack)
	// Fill reads a range, linearizably, and returns the term in which the cache may keep it; 0
	// if it may not.
	Fill(ctx context.Context, r keyrange.Range) (_ store.RangeResult, term uint64, _ error)
	// Close ends it.
	Close()
	// CloseAfter is Close after d, unless the client is closed before: it keeps nothing then.
	CloseAfter(d time.Duration)
}

// Hooks are the calls. The parameters stand for types of package client, which imports this one.
type Hooks[Client, Lease, Grant any] struct {
	// Grant grants a lease whose holder may keep copies of ranges.
	Grant func(ctx context.Context, c Client, g Grant, holds []keyrange.Range) (Lease, error)
	// Open begins to keep a cache in touch, whose lease holds the ranges.
	Open func(c Client, l Lease, to Events) (Link, error)
}

var hooks any // Hooks; nil until Set is called

// Set sets the hooks. Package client calls it.
func Set[C, L, G any](h Hooks[C, L, G]) { hooks = h }

// Get returns the hooks.
func Get[C, L, G any]() Hooks[C, L, G] { return hooks.(Hooks[C, L, G]) }
