package cache

import (
	"context"
	"fmt"
	"sync"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/copies"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/keyrange"
)

// Get returns a key, or [client.ErrKeyNotFound] if the key does not exist. Do not modify the value.
// A read from memory reads the clock once and takes no lock.
func (c *Cache) Get(ctx context.Context, key string) (store.KV, error) {
	l := c.current.Load()
	// The copy is looked up before the clock is read. This proves that the copy existed while the
	// lease was valid.
	if e := l.index.find(key); e != nil && l.lease.Valid() {
		e.mark.use()
		if e.kv == nil {
			return store.KV{}, client.ErrKeyNotFound
		}
		return *e.kv, nil
	}
	return single(c.Range(ctx, store.Key(key)))
}

// single returns the only key in a result.
func single(r store.RangeResult, err error) (store.KV, error) {
	switch {
	case err != nil:
		return store.KV{}, err
	case len(r.KVs) == 0:
		return store.KV{}, client.ErrKeyNotFound
	}
	return r.KVs[0], nil
}

func result(kvs []store.KV, revision int64) store.RangeResult {
	return store.RangeResult{Revision: revision, KVs: kvs, Count: int64(len(kvs))}
}

// Range returns all keys of a range. The range did not change between RangeResult.Revision and the
// read. Do not modify the result, because it is shared with other callers.
func (c *Cache) Range(ctx context.Context, of store.KeyRange) (store.RangeResult, error) {
	r := rangeOf(of)
	l := c.current.Load()
	kvs, revision, m, known := l.view.Load().Range(r)
	if known && l.lease.Valid() {
		m.(*mark).use()
		return result(kvs, revision), nil
	}
	return c.read(ctx, r)
}

// read reads a range that is not entirely in memory.
func (c *Cache) read(ctx context.Context, r keyrange.Range) (store.RangeResult, error) {
	since := c.flightSeq.Load() // flights with higher numbers started after this read began
	for parts := true; ; parts = false {
		l := c.current.Load()
		switch {
		case !l.lease.Valid():
			return c.bypass(ctx, r, fault.Because(ErrEnded, l.lease.Err()))
		case !l.set.Holds(r):
			return c.bypass(ctx, r, fmt.Errorf("%w: outside the cache's ranges", ErrNotHeld))
		}
		if err := l.notOpen(); err != nil && c.o.MemoryOnly {
			return store.RangeResult{}, err
		}
		res, gaps := l.lookup(r)
		switch {
		case len(gaps) == 0 && l.lease.Valid():
			return res, nil
		case len(gaps) > 0 && parts && gaps[0] != r:
			if err := l.fetchAll(ctx, gaps, since); err != nil {
				return store.RangeResult{}, err
			}
			continue
		}
		res, ok, err := l.fetch(ctx, r, since)
		if ok || err != nil {
			return res, err
		}
	}
}

// bypass reads from the cluster, or fails with err if MemoryOnly is set.
func (c *Cache) bypass(
	ctx context.Context, r keyrange.Range, err error,
) (store.RangeResult, error) {
	if c.o.MemoryOnly {
		return store.RangeResult{}, err
	}
	c.counts.fills.Add(1)
	return c.client.Range(ctx, store.Range{Key: r.Key, End: r.End})
}

// lookup returns the cached result for a range, or its gaps.
func (l *incarnation) lookup(r keyrange.Range) (store.RangeResult, []keyrange.Range) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kvs, revision, gaps := l.set.Range(r)
	l.publishLocked() // l.set.Range may have merged pieces
	return result(kvs, revision), gaps
}

// flight is a read from the cluster that is shared by concurrent callers.
type flight struct {
	number uint64
	what   keyrange.Range
	fill   *copies.Fill  // nil if the result cannot be kept
	done   chan struct{} // closed when the following fields have been set
	result store.RangeResult
	err    error
}

// fetch reads a range from the cluster, or waits for a flight that is already reading it. ok is
// false if the flight started before the caller's read began. The flight's result may then be too
// old, except for the part that the cache has kept.
func (l *incarnation) fetch(
	ctx context.Context, r keyrange.Range, since uint64,
) (_ store.RangeResult, ok bool, _ error) {
	l.mu.Lock()
	f, mine := l.flights[r], false
	if f == nil {
		f, mine = l.startFlightLocked(r), true
	}
	l.mu.Unlock()
	if mine {
		l.runFlight(ctx, f)
		return f.result, true, f.err
	}
	select {
	case <-f.done:
		return f.result, f.number > since && f.err == nil, nil
	case <-ctx.Done():
		return store.RangeResult{}, false, fault.In("cache: read", "", fault.Cause(ctx))
	}
}

// fetchAll fetches several ranges concurrently.
func (l *incarnation) fetchAll(ctx context.Context, list []keyrange.Range, since uint64) error {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, r := range list {
		all.Go(func() { _, _, errs[i] = l.fetch(ctx, r, since) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *incarnation) startFlightLocked(r keyrange.Range) *flight {
	f := &flight{
		number: l.cache.flightSeq.Add(1), what: r, done: make(chan struct{}), fill: l.set.Begin(r),
	}
	l.flights[r] = f
	return f
}

// runFlight performs the read for a flight.
func (l *incarnation) runFlight(ctx context.Context, f *flight) {
	defer close(f.done)
	l.cache.counts.fills.Add(1)
	var r store.RangeResult
	var term uint64
	if f.fill != nil {
		r, term, f.err = l.link.Fill(ctx, f.what)
	} else {
		r, f.err = l.cache.client.Range(ctx, store.Range{Key: f.what.Key, End: f.what.End})
	}
	f.result = r
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.flights, f.what)
	switch {
	case f.fill == nil:
		return
	case f.err != nil:
		l.set.Cancel(f.fill)
	case l.set.Complete(f.fill, copies.Answer[store.KV]{
		Term: term, Revision: r.Revision, Values: r.KVs,
	}):
		l.cache.counts.kept.Add(1)
	}
	l.publishLocked()
	l.reportLocked(true)
}
