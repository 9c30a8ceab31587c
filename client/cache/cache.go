package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/cachelink"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/backoff"
)

// Cache is a coherent cache of ranges of keys. Its methods are safe for concurrent use.
//
// Before a client sends a write, its own caches drop their copies, so the write does not have to
// wait for them. Writes through other clients do have to wait, even if those clients are in the
// same program. A cache never returns a value older than one that a watch has already delivered,
// because a write completes only after the cache has dropped its copy.
type Cache struct {
	client    *client.Client
	ranges    []store.KeyRange
	o         Options
	current   atomic.Pointer[incarnation] // never nil
	flightSeq atomic.Uint64               // sequence number of the latest read from the cluster
	counts    counts
	ctx       context.Context // canceled by Close
	cancel    context.CancelFunc
	all       sync.WaitGroup

	mu     sync.Mutex // guards the following fields and changes to current
	closed bool
}

type counts struct{ fills, kept, invalidations, reopened atomic.Uint64 }

// Open opens a cache of up to 64 ranges of keys (see [store.Prefix]). It returns once the cluster
// has registered the cache. Close the cache after use, so that writes no longer wait for it.
func Open(
	ctx context.Context, c *client.Client, ranges []store.KeyRange, o Options,
) (*Cache, error) {
	if len(ranges) == 0 {
		return nil, fmt.Errorf("cache: %w: no ranges", client.ErrInvalid)
	}
	o.Labels = maps.Clone(o.Labels)
	out := &Cache{client: c, ranges: slices.Clone(ranges), o: o.withDefaults()}
	out.ctx, out.cancel = context.WithCancel(context.Background())
	l, err := out.newIncarnation(ctx)
	if err != nil {
		out.cancel()
		return nil, err
	}
	out.current.Store(l)
	out.awaitEnd(l)
	return out, nil
}

// newIncarnation starts an incarnation, with a new lease and a new link.
func (c *Cache) newIncarnation(ctx context.Context) (*incarnation, error) {
	held, err := c.client.Grant(ctx, client.Grant{
		TTL: c.o.TTL, Name: c.o.Name, Owner: c.o.Owner, Labels: c.o.Labels,
		Grace: -1, // copies must not be used after the lease has ended
	}.ForCache(cachelink.Internal{}, rangesOf(c.ranges)))
	if err != nil {
		return nil, err
	}
	l := newIncarnation(c, held)
	if err := l.open(ctx); err != nil {
		l.abandon()
		return nil, err
	}
	return l, nil
}

// abandonTimeout is the timeout for revoking an unused lease. The lease expires anyway.
const abandonTimeout = time.Second

// abandon ends an incarnation that was never used.
func (l *incarnation) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), abandonTimeout)
	defer cancel()
	l.close()
	if err := l.lease.Revoke(ctx); err != nil {
		l.cache.o.Logger.Warn("failed to revoke the lease of a cache; it will expire",
			"lease", l.lease.ID(), "why", err)
	}
}

// awaitEnd arranges for ended to be called once the incarnation's lease has ended, unless the cache
// is closed first.
func (c *Cache) awaitEnd(l *incarnation) {
	c.all.Add(1)
	over := make(chan func() bool, 1)
	stop := context.AfterFunc(l.lease.Context(), func() {
		defer c.all.Done()
		(<-over)() // otherwise the cache would keep the incarnation in memory
		c.ended(l)
	})
	over <- context.AfterFunc(c.ctx, func() {
		if stop() {
			c.all.Done()
		}
	})
}

// ended closes an incarnation whose lease has ended. It starts another one unless Options.Reopen
// returns false.
func (c *Cache) ended(l *incarnation) {
	l.close()
	why := l.lease.Err()
	c.o.Logger.Warn("a cache lost its lease and dropped its data", "lease", l.lease.ID(),
		"why", why)
	if errors.Is(why, client.ErrClosed) {
		return
	}
	for failures := 0; c.ctx.Err() == nil; failures++ {
		if c.o.Reopen != nil && !c.o.Reopen(why) {
			return
		}
		next, err := c.newIncarnation(c.ctx)
		if err == nil {
			c.replace(next)
			return
		}
		if why = err; errors.Is(err, client.ErrClosed) {
			return
		}
		backoff.Sleep(c.ctx, backoff.Delay(failures, 50*time.Millisecond, 5*time.Second))
	}
}

// replace makes l the current incarnation, unless the cache has been closed.
func (c *Cache) replace(l *incarnation) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.counts.reopened.Add(1)
		c.current.Store(l)
		c.awaitEnd(l)
	}
	c.mu.Unlock()
	if closed {
		l.abandon()
	}
}

// Close stops the cache and revokes its lease, so that writes no longer wait for it. If the
// revocation fails, writes may have to wait until the lease expires. After Close, reads go to the
// cluster; with Options.MemoryOnly, they fail.
func (c *Cache) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.all.Wait()
	l := c.current.Load()
	l.close() // comes first, so that no write has to wait once the lease has been revoked
	return l.lease.Revoke(ctx)
}

// Lease returns the cache's lease. After the lease has ended, Lease keeps returning it until the
// cache has reopened.
func (c *Cache) Lease() *client.Lease { return c.current.Load().lease }

// Err returns nil while the cache can answer from memory, and otherwise the reason why it cannot.
func (c *Cache) Err() error {
	l := c.current.Load()
	if err := l.lease.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return l.notOpen()
}

// Stats returns statistics about the cache.
func (c *Cache) Stats() Stats {
	s := Stats{
		Fills: c.counts.fills.Load(), Kept: c.counts.kept.Load(),
		Invalidations: c.counts.invalidations.Load(), Reopened: c.counts.reopened.Load(),
	}
	l := c.current.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Entries, s.Bytes = l.set.Len()
	return s
}
