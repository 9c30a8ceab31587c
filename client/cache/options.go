package cache

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"leasehold.dev/client/store"
)

// ErrEnded means that the cache's lease has ended, so it no longer holds its ranges.
var ErrEnded = errors.New("cache: the lease has ended")

// ErrStale means that a follower's data in memory is older than its MaxAge.
var ErrStale = errors.New("cache: too old")

// ErrNotHeld means that a Cache or Follower with MemoryOnly cannot answer: the keys are outside its
// ranges, or the Cache is not open at the moment.
var ErrNotHeld = errors.New("cache: not held")

// Options configure a Cache. The zero value is a good default.
type Options struct {
	// TTL is the TTL of the cache's lease: 5 s if 0, or less if the servers' limit is lower. It
	// limits how long a write waits if the program is cut off or stopped. A shorter TTL costs more
	// renewals. Open fails if TTL exceeds what the servers allow (--lease-max-cache-ttl, 5 s by
	// default); the error states the limit.
	TTL time.Duration
	// Name, Owner and Labels are those of the lease. The server reports the owner when the cache is
	// slow to acknowledge.
	Name, Owner string
	Labels      map[string]string
	// MaxEntries and MaxBytes limit the memory used: 100,000 and 64 MiB if 0. Entries that have not
	// been used for a long time are evicted first. A range that exceeds the limits is read but not
	// kept.
	MaxEntries, MaxBytes int
	// MemoryOnly makes reads fail with [ErrEnded] or [ErrNotHeld] if the cache is not open or does
	// not hold the keys. By default they go to the cluster. Keys that are held but have not been
	// read yet always come from the cluster.
	MemoryOnly bool
	// Reopen decides whether the cache reopens, empty and with a new lease, after its lease has
	// ended for the given reason. If nil, it always reopens. Reopen is called on a goroutine of the
	// cache.
	Reopen func(why error) bool
	// Logger logs unusual events. If nil, nothing is logged.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.MaxEntries == 0 {
		o.MaxEntries = 100_000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Reader is the read interface of a [Cache] or a [Follower].
type Reader interface {
	// Get returns a key, or [client.ErrKeyNotFound] if it does not exist. Do not change the value.
	Get(ctx context.Context, key string) (store.KV, error)
	// Range returns the keys of a range. Do not change the result.
	Range(ctx context.Context, of store.KeyRange) (store.RangeResult, error)
}

// Stats are statistics of a cache since it was opened.
type Stats struct {
	// Entries and Bytes are the current size of the cache.
	Entries, Bytes int
	// Fills counts the reads from the cluster, and Kept those whose results were kept. Reads from
	// memory are not counted: counting would take longer than the read.
	Fills, Kept uint64
	// Invalidations counts the messages in which the cluster invalidated keys.
	Invalidations uint64
	// Reopened counts how many times the cache has reopened.
	Reopened uint64
}
