package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/history"
)

// A watcher watches the whole store through one member.
type watcher struct {
	name string
	c    *clientv3.Client
	h    *history.History
	view *history.Watch

	mu   sync.Mutex
	next int64 // first revision not received yet
}

// watchAll watches the whole store through every member, with one client per member. It returns
// stop, which ends the watches after a given last revision has arrived.
func watchAll(t *testing.T, c *cluster, h *history.History, first int64) (stop func(last int64)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var list []*watcher
	for _, m := range c.members {
		w := &watcher{
			name: m.name, c: client(t, m), h: h, view: history.NewWatch(m.name), next: first,
		}
		list = append(list, w)
		wg.Go(func() {
			for ctx.Err() == nil {
				w.follow(ctx)
			}
		})
	}
	return func(last int64) {
		t.Helper()
		for _, w := range list {
			harness.Eventually(t, "the watch of "+w.name+" catches up", func() error {
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.next <= last {
					return fmt.Errorf("at revision %d of %d", w.next-1, last)
				}
				return nil
			})
		}
		cancel()
		wg.Wait()
	}
}

// follow watches from where the previous watch stopped, until the watch ends.
func (w *watcher) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for r := range w.c.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(w.next)) {
		if len(r.Events) == 0 {
			continue
		}
		var changes []history.Change
		for _, e := range r.Events {
			gone := e.Type == clientv3.EventTypeDelete
			changes = append(changes, history.Change{
				Key: string(e.Kv.Key), Value: string(e.Kv.Value), Delete: gone, Revision: e.Kv.ModRevision,
			})
			if gone {
				w.h.Deleted(string(e.Kv.Key), "deleted", e.Kv.ModRevision)
			}
		}
		last := changes[len(changes)-1].Revision
		w.h.Observe(w.view, last, changes)
		w.mu.Lock()
		w.next = last + 1
		w.mu.Unlock()
	}
	select { // the watch was rejected, possibly by a member that has just started
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
}
