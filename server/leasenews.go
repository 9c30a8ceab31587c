package server

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// leaseNews wakes up the streams of lease events. Except for slow caches, it carries no data,
// because the streams read the view. The core only adds a token, so its cost does not depend on the
// number of streams.
type leaseNews struct {
	token chan struct{} // capacity 1
	slow  atomic.Pointer[native.SlowCaches]

	mu   sync.Mutex // guards the fields below
	last int
	wake map[int]func()
}

func newLeaseNews() *leaseNews {
	return &leaseNews{token: make(chan struct{}, 1), wake: make(map[int]func())}
}

// signal notifies run that there is something new.
func (n *leaseNews) signal() {
	select {
	case n.token <- struct{}{}:
	default:
	}
}

// setSlow sets the caches that writes are currently waiting for, as of an instant. It is called
// only by the core, repeatedly and often with the same list.
func (n *leaseNews) setSlow(list []replica.SlowCache, now lease.Instant) {
	var old []native.SlowCache
	if s := n.slow.Load(); s != nil {
		old = s.List
	}
	next := make([]native.SlowCache, len(list))
	kept := 0
	for i := range list {
		c := &list[i]
		next[i] = native.SlowCache{Lease: c.Lease, Since: now - lease.Instant(c.Waited)}
		if k := slices.IndexFunc(old, func(o native.SlowCache) bool {
			return o.Lease.ID == c.Lease.ID && o.Lease.Token == c.Lease.Token
		}); k >= 0 {
			next[i] = old[k] // keep the first instant, which is more accurate
			kept++
		}
	}
	if kept == len(old) && kept == len(next) {
		return
	}
	n.slow.Store(&native.SlowCaches{List: next})
	n.signal()
}

// run wakes up the streams until ctx ends.
func (n *leaseNews) run(ctx context.Context) {
	for {
		select {
		case <-n.token:
		case <-ctx.Done():
			return
		}
		n.mu.Lock()
		for _, f := range n.wake {
			f()
		}
		n.mu.Unlock()
	}
}

// OnLeaseNews implements native.Node.
func (n *node) OnLeaseNews(f func()) (stop func()) {
	w := n.news
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	id := w.last
	w.wake[id] = f
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.wake, id)
	}
}

// SlowCaches implements native.Node.
func (n *node) SlowCaches() *native.SlowCaches { return n.news.slow.Load() }

// Now implements native.Node.
func (n *node) Now() lease.Instant { return n.clock.now() }

// InspectHere implements native.Node.
func (n *node) InspectHere(ctx context.Context, f func(*lease.Lessor, uint64)) error {
	done := make(chan struct{})
	if !n.inbox.task(func() {
		m := n.replica.Machine()
		f(m.Lessor(), m.Index())
		close(done)
	}) {
		return api.ErrStopped
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.stopped:
		return api.ErrStopped
	}
}
