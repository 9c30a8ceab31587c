// Package cachelink gives package cache access to a part of package client that programs cannot
// use: the call that connects a cache to the cluster. Package client sets it when it is
// initialized.
package cachelink

import (
	"context"
	"time"

	"leasehold.dev/client/store"
	"leasehold.dev/internal/keyrange"
)

// Events are the callbacks of a Link to its cache. They are called one at a time, except Writing,
// and must not block.
type Events interface {
	// Opening is called before the cache is opened on another stream, or again: from now on,
	// answers must not be kept until it is Opened. It returns the contents of the cache.
	Opening() []keyrange.Range
	// Opened is called once the cluster knows the contents of the cache: answers in this term may
	// be kept. It must be acknowledged.
	Opened(term uint64)
	// Invalidated passes an invalidation, which must be acknowledged once the ranges are dropped.
	Invalidated(n Notice)
	// Writing is called before this client sends a write that may change these keys. It may be
	// called by any goroutine.
	Writing(list []keyrange.Range)
	// Refused is called with the reason if the cluster rejected the cache. The link retries if the
	// reason may be temporary.
	Refused(err error)
}

// Notice is an invalidation.
type Notice struct {
	Term, Seq uint64
	Drop      []keyrange.Range
}

// Ack acknowledges the invalidations of a term up to a number, and reports the ranges that the
// cache has dropped on its own.
type Ack struct {
	Term, Seq uint64
	// Open is the term in which the cache was opened, 0 if it was not opened since Opening.
	Open    uint64
	Dropped []keyrange.Range
}

// Link keeps a cache connected to the cluster while members and streams come and go.
type Link interface {
	// Ack acknowledges invalidations. It is lost if the stream breaks; the cluster then sends them
	// again. A range that has been invalidated again must not be acknowledged.
	Ack(a Ack)
	// Fill reads a range, linearizably, and returns the term in which the cache may keep it, or 0
	// if it may not.
	Fill(ctx context.Context, r keyrange.Range) (_ store.RangeResult, term uint64, _ error)
	// Close ends the link.
	Close()
	// CloseAfter is Close after d, unless the client is closed before.
	CloseAfter(d time.Duration)
}

// Hooks are the functions. The parameters stand for types of package client, which imports this
// one.
type Hooks[Client, Lease, Grant any] struct {
	// Grant grants a lease whose holder may keep copies of ranges.
	Grant func(ctx context.Context, c Client, g Grant, holds []keyrange.Range) (Lease, error)
	// Open connects the cache of a lease that holds ranges.
	Open func(c Client, l Lease, to Events) (Link, error)
}

var hooks any // Hooks; nil until Set is called

// Set sets the hooks. Package client calls it.
func Set[C, L, G any](h Hooks[C, L, G]) { hooks = h }

// Get returns the hooks.
func Get[C, L, G any]() Hooks[C, L, G] { return hooks.(Hooks[C, L, G]) }
