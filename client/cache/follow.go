package cache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/copies"
	"leasehold.dev/internal/keyrange"
)

// FollowOptions configures a Follower.
type FollowOptions struct {
	// MaxAge is the maximum age of answers from memory. 0 means 5 s, and the minimum is 500 ms.
	MaxAge time.Duration
	// MemoryOnly makes reads that cannot be answered from memory fail with [ErrStale] or
	// [ErrNotHeld]. By default, such reads go to the cluster.
	MemoryOnly bool
}

// Follower keeps all keys of some ranges in memory. Watches keep them up to date, usually within
// milliseconds. A Follower is not coherent: an answer from memory was current at some point within
// the last MaxAge, but may be older than a write acknowledged before the read. It holds no lease,
// and writes do not wait for it. If a Follower loses its connection to the cluster, it stops
// answering from memory after MaxAge.
//
// A read within one of the ranges reflects a single revision. A Follower may answer one read from
// the cluster and the next from memory, which can be slightly older. Its methods are safe for
// concurrent use.
type Follower struct {
	client *client.Client
	o      FollowOptions
	index  *index
	view   atomic.Pointer[copies.View[store.KV]]
	asOf   atomic.Pointer[moment]
	ctx    context.Context // canceled by Close
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu     sync.Mutex // guards the following fields and changes to index and view
	set    *copies.Set[store.KV]
	parts  []*part
	probes []probe
}

// part is one of the followed ranges.
type part struct {
	what     keyrange.Range
	revision int64              // the set is complete up to this revision
	asOf     moment             // a time at which this was the cluster's latest revision
	lost     bool               // the cluster was restored to an older state; reload the range
	restart  context.CancelFunc // ends the watch; nil if there is none
}

// probe records that revision was the cluster's latest at some time after at.
type probe struct {
	at       moment
	revision int64
}

// moment is a reading of both the monotonic and the wall clock.
type moment struct {
	at   time.Time
	wall int64
}

func now() moment {
	t := time.Now()
	return moment{at: t, wall: t.UnixNano()}
}

// age returns how much time has passed since the moment, by whichever clock has advanced further.
// Both are needed because the monotonic clock stops while the machine is suspended.
func (m moment) age(t time.Time) time.Duration {
	return max(t.Sub(m.at), time.Duration(t.UnixNano()-m.wall))
}

// Follow starts following ranges of keys, which must not overlap. It returns once all of them have
// been read.
func Follow(
	ctx context.Context, c *client.Client, ranges []store.KeyRange, o FollowOptions,
) (*Follower, error) {
	if len(ranges) == 0 {
		return nil, fmt.Errorf("cache: %w: no ranges", client.ErrInvalid)
	}
	if o.MaxAge == 0 {
		o.MaxAge = 5 * time.Second
	}
	o.MaxAge = max(o.MaxAge, 500*time.Millisecond)
	f := &Follower{client: c, o: o, index: newIndex()}
	f.set = copies.New(copies.Config[store.KV]{
		Holds: rangesOf(ranges), MaxEntries: math.MaxInt, MaxBytes: math.MaxInt,
		Key:     func(kv *store.KV) string { return kv.Key },
		Size:    func(kv *store.KV) int { return len(kv.Key) + len(kv.Value) },
		NewMark: func() copies.Mark { return new(mark) },
		Mirror:  f.index,
	})
	f.set.Opened(1)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	for _, r := range ranges {
		p := &part{what: rangeOf(r)}
		f.parts = append(f.parts, p)
		if !f.set.Holds(p.what) {
			f.cancel()
			return nil, fmt.Errorf("cache: %w: empty range", client.ErrInvalid)
		}
		if err := f.load(ctx, p); err != nil {
			f.cancel()
			return nil, err
		}
	}
	for _, p := range f.parts {
		f.all.Go(func() { f.follow(p) })
	}
	f.all.Go(f.probeLoop)
	return f, nil
}

// Close stops the follower. Later reads behave as if the data in memory were too old.
func (f *Follower) Close() {
	f.cancel()
	f.all.Wait()
	f.asOf.Store(nil)
}

// Age returns an upper bound on the age of the data in memory. It returns false if there is no
// bound.
func (f *Follower) Age() (time.Duration, bool) {
	m := f.asOf.Load()
	if m == nil {
		return 0, false
	}
	return m.age(time.Now()), true
}

// Get implements Reader.
func (f *Follower) Get(ctx context.Context, key string) (store.KV, error) {
	if e := f.index.find(key); e != nil && e.kv != nil && f.valid() {
		return *e.kv, nil
	}
	return single(f.Range(ctx, store.Key(key)))
}

// Range implements Reader.
func (f *Follower) Range(ctx context.Context, of store.KeyRange) (store.RangeResult, error) {
	r := rangeOf(of)
	kvs, revision, _, known := f.view.Load().Range(r)
	if !known && f.set.Holds(r) {
		kvs, revision, known = f.join(r)
	}
	switch {
	case known && f.valid():
		return result(kvs, revision), nil
	case f.o.MemoryOnly && f.set.Holds(r):
		return store.RangeResult{}, ErrStale
	case f.o.MemoryOnly:
		return store.RangeResult{}, fmt.Errorf("%w: outside the follower's ranges", ErrNotHeld)
	}
	return f.client.Range(ctx, of.Range())
}

// join merges the pieces that updates have split a range into.
func (f *Follower) join(r keyrange.Range) (kvs []store.KV, revision int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kvs, revision, gaps := f.set.Range(r)
	f.view.Store(f.set.View())
	return kvs, revision, len(gaps) == 0
}

// valid reports whether the data in memory is recent enough.
func (f *Follower) valid() bool {
	m := f.asOf.Load()
	return m != nil && m.age(time.Now()) < f.o.MaxAge
}

// load reads a range from the cluster.
func (f *Follower) load(ctx context.Context, p *part) error {
	at := now()
	r, err := f.client.Range(ctx, store.Range{Key: p.what.Key, End: p.what.End})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(p.what, r.Revision, r.KVs)
	f.view.Store(f.set.View())
	p.revision, p.asOf, p.lost = r.Revision, at, false
	f.updateAsOfLocked()
	return nil
}

// keepLocked stores a range that was read at the given revision.
func (f *Follower) keepLocked(what keyrange.Range, revision int64, kvs []store.KV) {
	f.set.Complete(f.set.Begin(what), copies.Answer[store.KV]{
		Term: 1, Revision: revision, Values: kvs,
	})
}

// follow keeps a range up to date until the follower is closed.
func (f *Follower) follow(p *part) {
	for failures := 0; ; failures++ {
		err := f.watch(p)
		if f.ctx.Err() != nil || errors.Is(err, client.ErrClosed) {
			return
		}
		backoff.Sleep(f.ctx, backoff.Delay(failures, 10*time.Millisecond, f.o.MaxAge/4))
		// The watch may have missed events, so the range is read again.
		if err := f.load(f.ctx, p); err == nil {
			failures = 0
		}
	}
}

// watch applies the events in a range until the watch fails.
func (f *Follower) watch(p *part) error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	f.mu.Lock()
	from, lost := p.revision+1, p.lost
	p.restart = cancel
	f.mu.Unlock()
	if lost {
		return errRolledBack
	}
	w, err := f.client.Watch(ctx, store.Watch{
		Key: p.what.Key, End: p.what.End, From: from, Progress: f.o.MaxAge / 4,
	})
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		u, err := w.Next(ctx)
		if err != nil {
			return err
		}
		f.apply(p, &u)
	}
}

// errRolledBack means that the cluster was restored to an older state.
var errRolledBack = errors.New("cache: the cluster was restored to an older state")

// apply applies the changes in one or more complete revisions.
func (f *Follower) apply(p *part, u *store.Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range u.Events {
		var kvs []store.KV
		if !e.Delete {
			kvs = []store.KV{e.KV}
		}
		f.keepLocked(keyrange.Range{Key: e.KV.Key}, e.KV.ModRevision, kvs)
	}
	f.view.Store(f.set.View())
	p.revision = max(p.revision, u.Revision)
	f.updateAsOfLocked()
}

// probeLoop probes the cluster's revision periodically.
func (f *Follower) probeLoop() {
	t := time.NewTicker(f.o.MaxAge / 4)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-f.ctx.Done():
			return
		}
		f.probe()
	}
}

// probe requests the cluster's revision. It ignores failures.
func (f *Follower) probe() {
	a, known := probe{at: now()}, f.maxRevision()
	ctx, cancel := context.WithTimeout(f.ctx, f.o.MaxAge)
	defer cancel()
	r, err := f.client.Range(ctx, store.Range{Key: f.parts[0].what.Key, CountOnly: true})
	if err != nil {
		return
	}
	a.revision = r.Revision
	f.addProbe(a, known)
}

// maxRevision returns the latest revision received for any range.
func (f *Follower) maxRevision() (revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.parts {
		revision = max(revision, p.revision)
	}
	return revision
}

// addProbe processes a probe. known is the latest revision received before the probe was sent. The
// cluster returns a lower revision only if it has been restored to an older state (T34). If it
// does, the ranges that are ahead of the probe are invalid and are read again.
func (f *Follower) addProbe(a probe, known int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.revision >= known {
		f.probes = append(f.probes, a)
		f.updateAsOfLocked()
		return
	}
	f.probes = nil
	for _, p := range f.parts {
		if p.lost = p.lost || p.revision > a.revision; p.lost && p.restart != nil {
			p.restart()
		}
	}
	f.updateAsOfLocked()
}

// maxProbes is the maximum number of probes waiting for the ranges to catch up.
const maxProbes = 16

// updateAsOfLocked sets asOf to the latest time at which every range is known to have been
// complete.
func (f *Follower) updateAsOfLocked() {
	done := 0
	for i, a := range f.probes {
		reached := true
		for _, p := range f.parts {
			if p.revision >= a.revision {
				p.asOf = later(p.asOf, a.at)
			} else {
				reached = false
			}
		}
		if reached {
			done = i + 1
		}
	}
	f.probes = f.probes[max(done, len(f.probes)-maxProbes):]
	oldest := f.parts[0].asOf
	for _, p := range f.parts {
		if p.lost {
			f.asOf.Store(nil)
			return
		}
		if later(oldest, p.asOf) == oldest {
			oldest = p.asOf
		}
	}
	f.asOf.Store(&oldest)
}

func later(a, b moment) moment {
	if a.at.After(b.at) {
		return a
	}
	return b
}
