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

// ErrStale means that the data in a Follower's memory is older than MaxAge.
var ErrStale = errors.New("cache: the data is too old")

// ErrNotHeld means that a Cache or Follower with MemoryOnly set cannot answer: the keys are outside
// its ranges, or the Cache is not open at the moment.
var ErrNotHeld = errors.New("cache: not held")

// Options configures a Cache. The zero value is a good default.
type Options struct {
	// TTL is the TTL of the cache's lease. 0 means 5 s, or the servers' limit if that is lower. The
	// TTL limits how long a write has to wait if the program stops or loses its connection. A
	// shorter TTL costs more renewals. Open fails if TTL exceeds the servers' limit
	// (--lease-max-cache-ttl, 5 s by default); the error states the limit.
	TTL time.Duration
	// Name, Owner and Labels are set on the lease. The server reports the owner if the cache is
	// slow to acknowledge invalidations.
	Name, Owner string
	Labels      map[string]string
	// MaxEntries and MaxBytes limit the cache's memory. 0 means 100,000 entries and 64 MiB. Entries
	// that have not been used for a long time are evicted first. A range that exceeds the limits is
	// read but not kept.
	MaxEntries, MaxBytes int
	// MemoryOnly makes reads fail with [ErrEnded] or [ErrNotHeld] if the cache is not open or does
	// not hold the keys. By default, such reads go to the cluster. With or without MemoryOnly, the
	// first read of a held key goes to the cluster.
	MemoryOnly bool
	// Reopen decides whether the cache reopens after its lease has ended for the given reason. A
	// reopened cache is empty and has a new lease. If Reopen is nil, the cache always reopens.
	// Reopen is called on one of the cache's goroutines.
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
	// Get returns a key, or [client.ErrKeyNotFound] if the key does not exist. Do not modify the
	// value.
	Get(ctx context.Context, key string) (store.KV, error)
	// Range returns the keys of a range. Do not modify the result.
	Range(ctx context.Context, of store.KeyRange) (store.RangeResult, error)
}

// Stats contains statistics about a cache since it was opened.
type Stats struct {
	// Entries and Bytes are the current size of the cache.
	Entries, Bytes int
	// Fills counts the reads from the cluster, and Kept counts the results that were kept. Reads
	// from memory are not counted, because counting would take longer than the read itself.
	Fills, Kept uint64
	// Invalidations counts the messages in which the cluster invalidated keys.
	Invalidations uint64
	// Reopened counts how many times the cache has reopened.
	Reopened uint64
}
