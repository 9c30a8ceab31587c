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

// linkCache connects a cache to the cluster. Tests replace it.
var linkCache = (*client.Lease).LinkCache

// incarnation is a cache during the lifetime of one lease. It implements cachelink.Events for its
// link.
//
// The copies in index and view are current while the lease is valid. A reader looks up the copy
// first and then checks the lease. A copy is removed from both index and view before its
// invalidation is acknowledged.
type incarnation struct {
	cache *Cache
	lease *client.Lease
	index *index
	view  atomic.Pointer[copies.View[store.KV]]
	// ready is closed once the cache has been opened or has failed to open. failure is set before
	// that: it is nil if the cache was opened, and otherwise contains the reason.
	ready   chan struct{}
	failure error

	mu      sync.Mutex // guards the following fields and changes to index and view
	link    cachelink.Link
	set     *copies.Set[store.KV]
	flights map[keyrange.Range]*flight
	isReady bool  // ready has been closed
	refusal error // the cluster's reason for refusing to open the cache
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

// open links the cache to the cluster and waits until it has been registered.
func (l *incarnation) open(ctx context.Context) error {
	link, err := linkCache(l.lease, cachelink.Internal{}, l)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.link = link
	l.reportLocked(true)
	l.mu.Unlock()
	return l.await(ctx)
}

// await waits until the cache has been opened for the first time. It succeeds even if the cache is
// already being reopened.
func (l *incarnation) await(ctx context.Context) error {
	select {
	case <-l.ready:
		return l.failure
	case <-l.lease.Context().Done(): // the cache can no longer open
		return fault.Because(ErrEnded, fault.Cause(l.lease.Context()))
	case <-ctx.Done():
		return fault.In("cache: open", "", fault.Cause(ctx))
	}
}

// close drops all copies and reports them as dropped, because the lease has ended or is about to
// end. For one more TTL, while writes may still be waiting, the cache continues to acknowledge
// invalidations.
func (l *incarnation) close() {
	l.mu.Lock()
	report, link := l.set.Close(), l.link
	l.publishLocked()
	if link != nil {
		l.ackLocked(report)
	}
	l.mu.Unlock()
	if link != nil { // called without holding mu, because the link calls Opening
		link.CloseAfter(l.lease.Info().TTL)
	}
}

// notOpen returns the reason why the cache is not open, or nil.
func (l *incarnation) notOpen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.set.Open():
		return nil
	case l.refusal != nil:
		return fmt.Errorf("cache: %w", l.refusal)
	default:
		return fmt.Errorf("%w: the cache is not currently open", ErrNotHeld)
	}
}

// publishLocked publishes the current copies to readers.
func (l *incarnation) publishLocked() { l.view.Store(l.set.View()) }

// reportLocked sends the pending report. It is called with mu held, so that an evicted range is
// reported before it can be read again.
func (l *incarnation) reportLocked(lazy bool) {
	if l.link == nil {
		return // the report is sent once there is a link
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
	if l.lease.Err() != nil { // nothing is cached, but the leader still needs the report
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

// Invalidated implements cachelink.Events. It drops the copies before it acknowledges.
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
		return // the link retries
	}
	l.cache.o.Logger.Warn("the cluster rejected the request to open a cache",
		"lease", l.lease.ID(), "why", err)
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

// normalize applies rangeOf to each range in a list.
func normalize(list []keyrange.Range) []keyrange.Range {
	out := make([]keyrange.Range, len(list))
	for i, r := range list {
		out[i] = rangeOf(store.KeyRange(r))
	}
	return out
}

// rangeOf converts a range to the form that the client uses in requests. No key is empty, so a
// range that starts at the empty key is changed to start at the first possible key.
func rangeOf(r store.KeyRange) keyrange.Range {
	if r.Key == "" && r.End != "" {
		r.Key = "\x00"
	}
	return keyrange.Range(r)
}
