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

// hooks are the client's hooks for caches.
var hooks = cachelink.Get[*client.Client, *client.Lease, client.Grant]()

// incarnation is a cache during one lease. It implements cachelink.Events for its link.
//
// The copies in index and view are current while the lease is valid: a reader looks there first,
// and then checks the lease. Copies are removed from both before their drop is acknowledged.
type incarnation struct {
	cache *Cache
	lease *client.Lease
	index *index
	view  atomic.Pointer[copies.View[store.KV]]
	// ready is closed once the cache is open or has failed to open. From then on, failure contains
	// the reason, and is immutable.
	ready   chan struct{}
	failure error

	mu      sync.Mutex // guards the following fields, and changes of index and view
	link    cachelink.Link
	set     *copies.Set[store.KV]
	flights map[keyrange.Range]*flight
	isReady bool  // ready is closed
	refusal error // the cluster's reason for not opening the cache
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

// open links the cache to the cluster, and waits until it is registered.
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

// await waits until the cache has been opened once. It succeeds even if the cache is already being
// reopened.
func (l *incarnation) await(ctx context.Context) error {
	select {
	case <-l.ready:
		return l.failure
	case <-l.lease.Context().Done(): // it will never be open
		return fault.Because(ErrEnded, fault.Cause(l.lease.Context()))
	case <-ctx.Done():
		return fault.In("cache: open", "", fault.Cause(ctx))
	}
}

// close drops and reports everything, because the lease has ended or is about to. It continues to
// acknowledge invalidations while writes may wait for them: for one TTL.
func (l *incarnation) close() {
	l.mu.Lock()
	report, link := l.set.Close(), l.link
	l.publishLocked()
	if link != nil {
		l.ackLocked(report)
	}
	l.mu.Unlock()
	if link != nil { // not with mu held: the link calls Opening
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
// reported before it is read again.
func (l *incarnation) reportLocked(lazy bool) {
	if l.link == nil {
		return // reported once there is a link
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
	if l.lease.Err() != nil { // nothing is cached; the report is only for the leader
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

// Invalidated implements cachelink.Events. Copies are dropped before the acknowledgement.
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
	l.cache.o.Logger.Warn("the cluster refused to open a cache", "lease", l.lease.ID(), "why", err)
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

// normalize applies rangeOf to a list.
func normalize(list []keyrange.Range) []keyrange.Range {
	out := make([]keyrange.Range, len(list))
	for i, r := range list {
		out[i] = rangeOf(store.KeyRange(r))
	}
	return out
}

// rangeOf returns a range as the client requests it. As no key is empty, a range from the empty key
// starts at the first possible key.
func rangeOf(r store.KeyRange) keyrange.Range {
	if r.Key == "" && r.End != "" {
		r.Key = "\x00"
	}
	return keyrange.Range(r)
}
