// Package cachelink contains the types of the calls that connect a cache to the cluster. Package
// client implements these calls and package cache uses them.
package cachelink

import (
	"context"
	"time"

	"leasehold.dev/client/store"
	"leasehold.dev/internal/keyrange"
)

// Events is how a Link notifies its cache. Its methods must not block. Apart from Writing, they are
// called one at a time.
type Events interface {
	// Opening is called before the cache is opened on a new stream or reopened. From then on,
	// answers must not be kept until Opened is called. Opening returns the contents of the cache.
	Opening() []keyrange.Range
	// Opened is called once the cluster has recorded the contents of the cache. From then on,
	// answers from the given term can be kept. The cache must acknowledge the call.
	Opened(term uint64)
	// Invalidated delivers an invalidation. The cache must acknowledge it once it has dropped the
	// ranges.
	Invalidated(n Notice)
	// Writing is called before this client sends a write that may change the given keys. It can be
	// called by any goroutine.
	Writing(list []keyrange.Range)
	// Refused is called if the cluster rejected the cache, with the reason. The link retries if the
	// reason may be temporary.
	Refused(err error)
}

// Notice is an invalidation.
type Notice struct {
	Term, Seq uint64
	Drop      []keyrange.Range
}

// Ack acknowledges the invalidations of a term up to a sequence number. It also reports the ranges
// that the cache has dropped on its own.
type Ack struct {
	Term, Seq uint64
	// Open is the term in which the cache was opened. It is 0 if the cache has not been opened
	// since Opening was called.
	Open    uint64
	Dropped []keyrange.Range
}

// Link keeps a cache connected to the cluster when members or streams fail.
type Link interface {
	// Ack acknowledges invalidations. If the stream breaks, the acknowledgment is lost, and the
	// cluster sends the invalidations again. The caller must not acknowledge a range that has been
	// invalidated again.
	Ack(a Ack)
	// Fill reads a range linearizably. term is the term in which the cache may keep the range, or 0
	// if the cache must not keep it.
	Fill(ctx context.Context, r keyrange.Range) (_ store.RangeResult, term uint64, _ error)
	// Close ends the link.
	Close()
	// CloseAfter calls Close after d, unless the client is closed first.
	CloseAfter(d time.Duration)
}

// Internal is a parameter of the methods of package client that only package cache calls. Programs
// cannot import this package, so they cannot call those methods.
type Internal struct{ _ struct{} }
