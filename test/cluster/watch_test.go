package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
)

// A log is what one watch delivered, in order.
type watchLog struct {
	name string

	mu     sync.Mutex
	events []delivered
}

// A delivered event has the revision that it is part of.
type delivered struct {
	event
	revision int64
}

// watchAll follows the whole store from every member, each by a client that
// knows only this member, until stop is called with the revision up to which
// all must have come.
func watchAll(t *testing.T, c *cluster, first int64) (stop func(last int64) []*watchLog) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var logs []*watchLog
	for _, m := range c.members {
		w := &watchLog{name: m.name}
		logs = append(logs, w)
		watcher := client(t, m)
		wg.Go(func() {
			for ctx.Err() == nil {
				w.follow(ctx, watcher, first)
			}
		})
	}
	return func(last int64) []*watchLog {
		t.Helper()
		for _, w := range logs {
			harness.Eventually(t, "the watch of "+w.name+" catches up", func() error {
				if got := w.next(first) - 1; got < last {
					return fmt.Errorf("revision %d of %d", got, last)
				}
				return nil
			})
		}
		cancel()
		wg.Wait()
		return logs
	}
}

// follow watches from where the log ends, until the watch ends.
func (w *watchLog) follow(ctx context.Context, c *clientv3.Client, first int64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := c.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(w.next(first)))
	for r := range ch {
		w.mu.Lock()
		for _, e := range r.Events {
			d := delivered{event{
				key: string(e.Kv.Key), value: string(e.Kv.Value), lease: e.Kv.Lease,
				gone: e.Type == clientv3.EventTypeDelete,
			}, e.Kv.ModRevision}
			w.events = append(w.events, d)
		}
		w.mu.Unlock()
	}
	select { // the watch was refused: the member has perhaps just started
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
}

// next returns the revision after the last one in the log.
func (w *watchLog) next(first int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) == 0 {
		return first
	}
	return w.events[len(w.events)-1].revision + 1
}

// agree checks that each log has every revision once, in order, with the same
// events in the same order (W1), and returns the journal they make.
func agree(logs []*watchLog, first int64) (journal, error) {
	var wrong []error
	for _, w := range logs {
		revision := first - 1
		for _, e := range w.events {
			if e.revision != revision && e.revision != revision+1 {
				wrong = append(wrong, fmt.Errorf("watch of %s: revision %d after %d",
					w.name, e.revision, revision))
			}
			revision = e.revision
		}
		if i := differ(w.events, logs[0].events); i >= 0 {
			wrong = append(wrong, fmt.Errorf("watches of %s and %s differ at event %d: %v and %v",
				w.name, logs[0].name, i, at(w.events, i), at(logs[0].events, i)))
		}
	}
	j := journal{}
	for _, e := range logs[0].events {
		for _, o := range j[e.revision] {
			if o.key == e.key {
				wrong = append(wrong, fmt.Errorf("revision %d has %s twice", e.revision, e.key))
			}
		}
		j[e.revision] = append(j[e.revision], e.event)
	}
	return j, errors.Join(wrong...)
}

// differ returns the first index at which the two differ, or -1. The events
// after the end of the shorter are not compared: a watch may have seen more than
// it had to.
func differ(a, b []delivered) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func at(events []delivered, i int) string { return fmt.Sprintf("%+v", events[i]) }

// fold returns what the store must hold after the journal up to a revision.
func (j journal) fold(upTo int64) map[string]event {
	out := map[string]event{}
	for _, revision := range slices.Sorted(maps.Keys(j)) {
		if revision > upTo {
			break
		}
		for _, e := range j[revision] {
			delete(out, e.key)
			if !e.gone {
				out[e.key] = e
			}
		}
	}
	return out
}

// sameStore compares what a member has at a revision with what the watches say.
func sameStore(t *testing.T, m *member, j journal, last int64) {
	t.Helper()
	harness.Eventually(t, "a whole read through "+m.name, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), opPatience)
		defer cancel()
		r, err := m.admin.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(last))
		if err != nil {
			return err
		}
		want := j.fold(last)
		for _, kv := range r.Kvs {
			got := event{key: string(kv.Key), value: string(kv.Value), lease: kv.Lease}
			if got != want[got.key] {
				t.Errorf("%s has %+v at revision %d, the watches say %+v",
					m.name, got, last, want[got.key])
			}
			delete(want, got.key)
		}
		for _, e := range want {
			t.Errorf("%s has no %+v at revision %d", m.name, e, last)
		}
		return nil
	})
}
