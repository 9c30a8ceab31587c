package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"leasehold.dev/test/harness"
)

// watcher watches all node leases. When its watch ends, it resumes from the last resource version.
type watcher struct {
	t      *testing.T
	leases client.LeaseInterface

	mu       sync.Mutex // guards the following fields
	revision int64
	seen     map[int64]bool // versions of all events
	// skipped holds version ranges (first excluded, last included) covered by a list instead of
	// events.
	skipped   [][2]int64
	bookmarks int
	resumed   int
}

func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		revision := w.revision
		w.mu.Unlock()
		if revision == 0 {
			w.list(ctx)
			continue
		}
		stream, err := w.leases.Watch(ctx, metav1.ListOptions{
			ResourceVersion: fmt.Sprint(revision), AllowWatchBookmarks: true,
			// A bookmark arrives two seconds before the watch ends.
			TimeoutSeconds: ptr.To(int64(10)),
		})
		if err == nil {
			err = w.follow(stream)
		}
		switch {
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			w.list(ctx)
		case err != nil:
			pause(ctx)
		}
		w.mu.Lock()
		w.resumed++
		w.mu.Unlock()
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
}

// list reads all leases. The list replaces the events since the last one received.
func (w *watcher) list(ctx context.Context) {
	l, err := w.leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		pause(ctx)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	v := version(w.t, &metav1.ObjectMeta{ResourceVersion: l.ResourceVersion})
	if v < w.revision {
		w.t.Errorf("a list has version %d; an event had %d", v, w.revision)
	}
	w.skipped = append(w.skipped, [2]int64{w.revision, v})
	w.revision = v
}

// follow processes events until the watch ends.
func (w *watcher) follow(stream watch.Interface) error {
	defer stream.Stop()
	for e := range stream.ResultChan() {
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		w.mu.Lock()
		v := version(w.t, e.Object.(*coordination.Lease))
		if e.Type == watch.Bookmark {
			w.bookmarks++
		} else if w.seen[v] = true; v <= w.revision {
			w.t.Errorf("an event of version %d follows version %d", v, w.revision)
		}
		if v < w.revision {
			w.t.Errorf("a bookmark of version %d follows version %d", v, w.revision)
		}
		w.revision = v
		w.mu.Unlock()
	}
	return nil
}

// check waits for the last acknowledged update and checks that no earlier update was missed.
func (w *watcher) check(acked []int64) {
	w.t.Helper()
	last := slices.Max(acked)
	harness.Eventually(w.t, "the watch has all events", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.revision < last {
			return fmt.Errorf("it is at version %d, not %d", w.revision, last)
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	var listed, missed int
	for _, v := range acked {
		switch {
		case w.seen[v]:
		case w.skips(v):
			listed++
		default:
			missed++
		}
	}
	w.t.Logf("watch: %d events, %d bookmarks, resumed %d times, listed %d times (in place of %d events)",
		len(w.seen), w.bookmarks, w.resumed, len(w.skipped), listed)
	if missed > 0 {
		w.t.Errorf("the watch missed %d of %d acknowledged updates", missed, len(acked))
	}
	if w.bookmarks == 0 {
		w.t.Error("the watch had no bookmark")
	}
}

func (w *watcher) skips(v int64) bool {
	for _, s := range w.skipped {
		if s[0] < v && v <= s[1] {
			return true
		}
	}
	return false
}

// informer runs an informer for all node leases.
func informer(ctx context.Context, t *testing.T, c kubernetes.Interface) cache.SharedIndexInformer {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(namespace))
	i := factory.Coordination().V1().Leases().Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	return i
}

// converges waits until an informer has exactly the same objects as the API server.
func converges(t *testing.T, i cache.SharedIndexInformer, leases client.LeaseInterface, n int) {
	t.Helper()
	want, err := leases.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Items) != n {
		t.Errorf("there are %d leases; want %d", len(want.Items), n)
	}
	harness.Eventually(t, "the informer converges", func() error {
		if got := len(i.GetStore().ListKeys()); got != n {
			return fmt.Errorf("it has %d leases; want %d", got, n)
		}
		for _, l := range want.Items {
			got, ok, err := i.GetStore().GetByKey(namespace + "/" + l.Name)
			if err != nil || !ok || got.(*coordination.Lease).ResourceVersion != l.ResourceVersion {
				return fmt.Errorf("%s: %t, %v", l.Name, ok, err)
			}
		}
		return nil
	})
}
