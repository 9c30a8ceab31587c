package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/cachelink"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/copies"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/keyrange"
)

// hooks are what the client has for caches.
var hooks = cachelink.Get[*client.Client, *client.Lease, client.Grant]()

// incarnation is a cache from the beginning of one lease to its end. It is the cachelink.Events of
// its link.
//
// What is in index and view is true as long as the lease is valid: a reader looks there
// first, and then whether the lease is valid. What is dropped is gone from both before it is
// acknowledged.
type incarnation struct {
	cache *Cache
	lease *client.Lease
	index *index
	view  atomic.Pointer[copies.View[store.KV]]
	// settled is closed when the cache is open, or will not be. Then failure says why, and
	// does not change any more.
	ready   chan struct{}
	failure error

	mu      sync.Mutex // guards what follows, and changes of index and view
	link    cachelink.Link
	set     *copies.Set[store.KV]
	flights map[keyrange.Range]*flight
	isReady bool  // settled is closed
	refusal error // why the cache is not open, if the cluster has said so
}

func newIncarnation(c *Cache, held *client.Lease) *incarnation {
	l := &incarnation{
		cache: c, lease: held, index: newIndex(), ready: make(chan struct{}),
		flights: make(map[keyrange.Range]*flight),
	}
	l.set = copies.New(copies.Config[store.KV]{
		Holds: rangesOf(c.ranges), MaxEntries: c.o.MaxEntries, MaxBytes: c.o.MaxBytes,
		Key:     func(kv *store.KV) string { return kv.Key },
		Size:    func(kv *store.KV) int { return len(kv.Key) + len(kv.Value) },
		NewMark: func() copies.Mark { return new(mark) },
		Mirror:  l.index,
	})
	l.publishLocked()
	return l
}

// open links the cache to the cluster, and waits until that knows of it.
func (l *incarnation) open(ctx context.Context) error {
	link, err := hooks.Open(l.cache.client, l.lease, l)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.link = link
	l.reportLocked(true)
	l.mu.Unlock()
	return l.await(ctx)
}

// await waits until the cache was open for the first time. It may be that it is being opened
// anew by then: that is no failure.
func (l *incarnation) await(ctx context.Context) error {
	select {
	case <-l.ready:
		return l.failure
	case <-l.lease.Context().Done(): // so it will not be open any more
		return fault.Because(ErrEnded, fault.Cause(l.lease.Context()))
	case <-ctx.Done():
		return fault.In("cache: open", "", fault.Cause(ctx))
	}
}

// leave drops everything and says so, since the lease is over, or about to be. What the cluster
// asks it to drop it goes on to acknowledge for as long as writes may wait for that: a TTL.
func (l *incarnation) close() {
	l.mu.Lock()
	told, link := l.set.Close(), l.link
	l.publishLocked()
	if link != nil {
		l.ackLocked(told)
	}
	l.mu.Unlock()
	if link != nil { // not with mu held, which the link asks for in Opening
		link.CloseAfter(l.lease.Info().TTL)
	}
}

// notOpen says why the cache is not open.
func (l *incarnation) notOpen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.set.Open():
		return nil
	case l.refusal != nil:
		return fmt.Errorf("cache: %w", l.refusal)
	default:
		return fmt.Errorf("%w: the cache is not open now", ErrNotHeld)
	}
}

// publishLocked lets readers see what there is.
func (l *incarnation) publishLocked() { l.view.Store(l.set.View()) }

// reportLocked tells the cluster what is to be told. It is called with mu held, so that what
// is given up is told before it is asked for again.
func (l *incarnation) reportLocked(lazy bool) {
	if l.link == nil {
		return // it is told when there is one
	}
	if t, ok := l.set.TakeReport(lazy); ok {
		l.ackLocked(t)
	}
}

func (l *incarnation) ackLocked(t copies.Report) {
	l.link.Ack(cachelink.Ack{Term: t.Term, Seq: t.Seq, Open: t.Open, Dropped: t.Dropped})
}

// Opening implements cachelink.Events.
func (l *incarnation) Opening() []keyrange.Range {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.set.Reopen()
}

// Opened implements cachelink.Events.
func (l *incarnation) Opened(term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease.Err() != nil { // it has nothing, and only the leader has to know that
		if l.link != nil {
			l.ackLocked(copies.Report{Open: term})
		}
		return
	}
	l.set.Opened(term)
	l.refusal = nil
	l.setReadyLocked(nil)
	l.reportLocked(true)
}

// Invalidated implements cachelink.Events. What is acknowledged is dropped before.
func (l *incarnation) Invalidated(n cachelink.Notice) {
	l.cache.counts.invalidations.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set.Invalidate(n.Term, n.Seq, normalize(n.Drop))
	l.publishLocked()
	l.reportLocked(true)
}

// Writing implements cachelink.Events.
func (l *incarnation) Writing(list []keyrange.Range) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set.Drop(normalize(list)...)
	l.publishLocked()
	l.reportLocked(false)
}

// Refused implements cachelink.Events.
func (l *incarnation) Refused(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = err
	if errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrUnknownOutcome) ||
		errors.Is(err, client.ErrNotLoggedIn) {
		return // it is asked again
	}
	l.cache.o.Logger.Warn("the cluster does not take a cache", "lease", l.lease.ID(), "why", err)
	l.setReadyLocked(fmt.Errorf("cache: %w", err))
}

func (l *incarnation) setReadyLocked(failure error) {
	if !l.isReady {
		l.isReady, l.failure = true, failure
		close(l.ready)
	}
}

func rangesOf(list []store.KeyRange) []keyrange.Range {
	out := make([]keyrange.Range, len(list))
	for i, r := range list {
		out[i] = rangeOf(r)
	}
	return out
}

// ranges are those as rangeOf has them.
func normalize(list []keyrange.Range) []keyrange.Range {
	out := make([]keyrange.Range, len(list))
	for i, r := range list {
		out[i] = rangeOf(store.KeyRange(r))
	}
	return out
}

// rangeOf is a range as the client asks for it: no key is empty, so one from there on is one
// from the first key that can be.
func rangeOf(r store.KeyRange) keyrange.Range {
	if r.Key == "" && r.End != "" {
		r.Key = "\x00"
	}
	return keyrange.Range(r)
}
