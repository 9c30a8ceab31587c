package cache

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"leasehold.dev/client/store"
)

// ErrEnded means that the cache's lease has ended: the cache holds no ranges any more.
var ErrEnded = errors.New("cache: the lease has ended")

// ErrStale means that what a follower has in memory is older than its MaxAge.
var ErrStale = errors.New("cache: too old")

// ErrNotHeld means that a Cache or Follower with MemoryOnly cannot answer: the keys are not
// within its ranges, or the Cache is not open now.
var ErrNotHeld = errors.New("cache: not held")

// Options configure a Cache. The zero Options are good defaults.
type Options struct {
	// TTL is the TTL of the cache's lease; 5 s if 0, or less if the servers allow less. It is how
	// long a write waits at most if the program is cut off or stopped. A shorter TTL costs more
	// renewals. Open fails if TTL is more than the servers allow (--lease-max-cache-ttl, 5 s by
	// default); the message says how much that is.
	TTL time.Duration
	// Name, Owner and Labels are those of the lease. The server names the owner when the cache is
	// slow to answer.
	Name, Owner string
	Labels      map[string]string
	// MaxEntries and MaxBytes bound the memory; 100,000 and 64 MiB if 0. Entries that were not
	// used for a long time go first. A range that is larger is read but not kept.
	MaxEntries, MaxBytes int
	// MemoryOnly makes reads fail with [ErrEnded] or [ErrNotHeld] if the cache is not open, or
	// does not hold the keys. By default they go to the cluster. Keys that are held but not yet
	// read come from the cluster in any case.
	MemoryOnly bool
	// Reopen decides, after the lease has ended for the reason why, whether the cache opens
	// again, empty and with a new lease; nil means always. It is called on a goroutine of the
	// cache.
	Reopen func(why error) bool
	// Logger logs what is unusual; nil for no log.
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

// Reader reads keys: a [Cache] or a [Follower].
type Reader interface {
	// Get reads a key; [client.ErrKeyNotFound] if there is none. Do not change the value.
	Get(ctx context.Context, key string) (store.KV, error)
	// Range reads a range of keys. Do not change the result.
	Range(ctx context.Context, of store.KeyRange) (store.RangeResult, error)
}

// Stats are numbers of a cache since it was opened.
type Stats struct {
	// Entries and Bytes are what is in memory now.
	Entries, Bytes int
	// Fills counts reads that went to the cluster, Kept those of them that were kept. Reads from
	// memory are not counted: counting would take longer than the read.
	Fills, Kept uint64
	// Invalidations counts the messages by which the cluster told the cache to drop something.
	Invalidations uint64
	// Reopened counts how often the cache opened again.
	Reopened uint64
}
