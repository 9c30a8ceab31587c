package compare

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/load"
)

// cacheWorkload returns the workload with coherent caches. Only leasehold has caches. Other servers
// run the same writes with watchers instead, for comparison.
func cacheWorkload() Workload {
	return Workload{
		// Granting is set because a comparison with a server without leases would be pointless.
		Name: "cache", Sessions: 8, Granting: true, Sheet: true, run: runCache,
		Doc: "reads from memory, and puts through etcd's client to a key that 0 to 1,000 caches " +
			"have, and a dead one; in etcd they are watchers",
	}
}

// runCache measures reads from memory, and then writes to a key in caches.
func runCache(ctx context.Context, e *Env) (Result, error) {
	var f figures
	if native(e.Sessions[0]) != nil {
		if err := e.hits(ctx, &f); err != nil {
			return Result{}, err
		}
	}
	if err := e.cacheWrites(ctx, &f); err != nil {
		return Result{}, err
	}
	return Result{More: f}, nil
}

// figures holds the lines of a sheet.
type figures []Metric

func (f *figures) add(name string, v float64, unit string) {
	*f = append(*f, Metric{Name: name, Value: v, Unit: unit})
}

// latencies adds the median and the 99th percentile.
func (f *figures) latencies(name string, h *load.Histogram) {
	f.add(name+" p50", load.Millis(h.Quantile(0.5)), "ms")
	f.add(name+" p99", load.Millis(h.Quantile(0.99)), "ms")
}

// native returns the client of a session, or nil if the server is not leasehold.
func native(s Session) *client.Client {
	if s, ok := s.(leaseholdSession); ok {
		return s.c
	}
	return nil
}

// openCaches opens n caches for one key, or for all keys with a prefix, and spreads them evenly
// over clients.
func (e *Env) openCaches(
	ctx context.Context, n int, r store.KeyRange, ttl time.Duration,
) ([]*cache.Cache, error) {
	list := make([]*cache.Cache, n)
	err := load.Spread(ctx, min(n, 64), n, func(ctx context.Context, _, i int) (err error) {
		c := native(e.Sessions[i%len(e.Sessions)])
		list[i], err = cache.Open(ctx, c, []store.KeyRange{r}, cache.Options{TTL: ttl})
		return err
	})
	if err != nil {
		return nil, errors.Join(err, closeCaches(ctx, list))
	}
	return list, nil
}

func closeCaches(ctx context.Context, list []*cache.Cache) error {
	return load.Spread(ctx, 64, len(list), func(ctx context.Context, _, i int) error {
		if list[i] == nil {
			return nil
		}
		return list[i].Close(ctx)
	})
}

// hits measures reads that one cache answers from memory.
func (e *Env) hits(ctx context.Context, f *figures) error {
	if err := fillSession(ctx, e.Sessions[0]); err != nil {
		return err
	}
	list, err := e.openCaches(ctx, 1, store.Prefix("bench/"), 0)
	if err != nil {
		return err
	}
	c := list[0]
	keys := make([]string, sessionKeys)
	for i := range keys {
		keys[i] = sessionKey(i)
		if _, err := c.Get(ctx, keys[i]); err != nil {
			return err
		}
	}
	before := c.Stats().Fills
	one, err := hitLoop(ctx, c, keys, 1, e.Duration)
	if err != nil {
		return err
	}
	many, err := hitLoop(ctx, c, keys, loopCallers, e.Duration)
	if err != nil {
		return err
	}
	if n := c.Stats().Fills - before; n > 0 {
		return fmt.Errorf("bench: %d reads of a full cache went to the server", n)
	}
	f.add("from memory, one caller", 1e9/one, "ns")
	f.add("from memory, 64 callers", many, "reads/s")
	return closeCaches(ctx, list)
}

// hitLoop runs callers that read as fast as they can, and returns the reads per second. The loop
// does not read the clock, because that would take as long as a read.
func hitLoop(
	ctx context.Context, c *cache.Cache, keys []string, callers int, d time.Duration,
) (float64, error) {
	const lap = 256 // reads between two checks of the stop condition
	var stop atomic.Bool
	var laps atomic.Int64
	began := time.Now()
	timer := time.AfterFunc(d, func() { stop.Store(true) })
	defer timer.Stop()
	err := load.Parallel(callers, func(caller int, _ *load.Histogram) error {
		n := int64(0)
		for k := caller * 31; !stop.Load(); n++ {
			for range lap {
				k++
				if _, err := c.Get(ctx, keys[k%len(keys)]); err != nil {
					return err
				}
			}
		}
		laps.Add(n)
		return nil
	}, nil)
	return float64(laps.Load()*lap) / time.Since(began).Seconds(), err
}
