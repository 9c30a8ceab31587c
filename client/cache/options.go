package cache

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"leasehold.dev/client/store"
)

// ErrEnded means that the cache's lease has ended: it holds nothing any more.
var ErrEnded = errors.New("cache: the lease has ended")

// ErrStale means that a follower does not know what there is well enough.
var ErrStale = errors.New("cache: too old")

// ErrNotHeld means that a cache which is not to ask the cluster has no right to answer: what
// was asked is not within its ranges, or it is not open now.
var ErrNotHeld = errors.New("cache: not held")

// Options say how a cache works. The zero Options are good ones.
type Options struct {
	// TTL is that of the cache's lease; if 0, 5 s or what the servers allow, if that is less. It
	// is the longest time for which a write waits if the program is cut off or stopped, and
	// shorter ones cost more renewals. More than the servers allow (--lease-max-cache-ttl, 5 s
	// by default) is refused, with a message that says how much that is.
	TTL time.Duration
	// Name, Owner and Labels are those of the lease. The owner is named when the cache is
	// slow to answer.
	Name, Owner string
	Labels      map[string]string
	// MaxEntries and MaxBytes bound what is kept; 100,000 and 64 MiB if 0. What was not
	// used for long goes first. A range that is larger is read and not kept.
	MaxEntries, MaxBytes int
	// MemoryOnly makes reads fail that need the cluster because the cache is not open, or
	// has no right to what is asked: with [ErrEnded] or [ErrNotHeld]. Otherwise they go to
	// the cluster. What is held and not there yet is read from the cluster in any case.
	MemoryOnly bool
	// Reopen is asked when the lease has ended, and why, whether the cache shall begin anew,
	// empty and with a new lease; nil always does. It is called on a goroutine of the cache.
	Reopen func(why error) bool
	// Logger takes note of what is out of the ordinary; nil means that nobody does.
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

// Result is what there is in a range. Nobody may change it: others have the same.
type Result struct {
	// KVs are in the order of their keys.
	KVs []store.KV
	// Revision is one of the store at which the range was so. It has not changed since,
	// until the read.
	Revision int64
}

// Reader reads keys: a [Cache] or a [Follower].
type Reader interface {
	// Get reads a key; ok says whether there is one. The value must not be changed.
	Get(ctx context.Context, key string) (kv store.KV, ok bool, err error)
	// Range reads a range of keys; end is as in [store.Range].
	Range(ctx context.Context, key, end string) (Result, error)
}

// Stats are numbers of a cache since it was opened.
type Stats struct {
	// Entries and Bytes are kept now.
	Entries, Bytes int
	// Fills are reads that went to the cluster, Kept those of them that were kept.
	// What is answered from memory is not counted: that would take longer than to answer.
	Fills, Kept uint64
	// Invalidations are messages of the cluster that something is to be dropped.
	Invalidations uint64
	// Reopened is how often the cache began anew.
	Reopened uint64
}
