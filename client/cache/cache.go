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
	"leasehold.dev/client/store"
)

// Cache is a coherent cache of some ranges of keys. Its methods may be called from any
// goroutine.
//
// Before a client sends a write, its own caches drop their copies, so that the write need not
// wait for them. Writes through other clients, even of the same program, have to wait. A cache
// never answers with an older value than a watch has already told: a write is done only after the
// cache has dropped its copy.
type Cache struct {
	client    *client.Client
	ranges    []store.KeyRange
	o         Options
	current   atomic.Pointer[incarnation] // never nil
	flightSeq atomic.Uint64               // reads from the cluster that began
	counts    counts
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	all       sync.WaitGroup

	mu     sync.Mutex // guards what follows, and changes of current
	closed bool
}

type counts struct{ fills, kept, invalidations, reopened atomic.Uint64 }

// Open opens a cache of ranges of keys, at most 64: see [store.Prefix]. It returns when the
// cluster has registered the cache. Close the cache after use, so that no write waits for it.
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

// begin begins an incarnation: a lease, and a link.
func (c *Cache) newIncarnation(ctx context.Context) (*incarnation, error) {
	held, err := hooks.Grant(ctx, c.client, client.Grant{
		TTL: c.o.TTL, Name: c.o.Name, Owner: c.o.Owner, Labels: c.o.Labels,
		Grace: -1, // past its end nothing of it counts
	}, rangesOf(c.ranges))
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

// patience is how long a cache that nobody wants tries to revoke its lease, which otherwise
// ends by itself.
const abandonTimeout = time.Second

// abandon ends an incarnation that is not to be.
func (l *incarnation) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), abandonTimeout)
	defer cancel()
	l.close()
	if err := l.lease.Revoke(ctx); err != nil {
		l.cache.o.Logger.Warn("the lease of a cache ends by itself", "lease", l.lease.ID(),
			"why", err)
	}
}

// follow sees to the end of an incarnation.
func (c *Cache) awaitEnd(l *incarnation) {
	c.all.Add(1)
	over := make(chan func() bool, 1)
	stop := context.AfterFunc(l.lease.Context(), func() {
		defer c.all.Done()
		(<-over)() // else the cache would keep the incarnation as long as it is open
		c.ended(l)
	})
	over <- context.AfterFunc(c.ctx, func() {
		if stop() {
			c.all.Done()
		}
	})
}

// ended leaves an incarnation whose lease has ended, and begins another unless the program does not
// want that.
func (c *Cache) ended(l *incarnation) {
	l.close()
	why := l.lease.Err()
	c.o.Logger.Warn("a cache has lost its lease, and holds nothing", "lease", l.lease.ID(),
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
		pause(c.ctx, failures, 50*time.Millisecond, 5*time.Second)
	}
}

// replace makes another incarnation the current one of the cache, unless that is closed by now.
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

// pause waits after a failure: at first for some time, then twice as long each time, and at most
// for another. It waits no longer than the context.
func pause(ctx context.Context, failures int, first, most time.Duration) {
	t := time.NewTimer(min(first<<min(failures, 10), most))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Close stops the cache and revokes its lease. Writes no longer wait for it; if the revocation
// fails, they may until the lease expires. Later reads go to the cluster, or fail with
// Options.MemoryOnly.
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
	l.close() // before: then writes have nothing to wait for when the lease is revoked
	return l.lease.Revoke(ctx)
}

// Lease returns the lease of the cache. After the lease has ended, it returns the ended one until
// the cache has opened again.
func (c *Cache) Lease() *client.Lease { return c.current.Load().lease }

// Err returns nil while the cache may answer from memory, otherwise why it may not.
func (c *Cache) Err() error {
	l := c.current.Load()
	if err := l.lease.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return l.notOpen()
}

// Stats returns numbers of the cache.
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
