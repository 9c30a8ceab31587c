package cache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// reads opens a cache for r/, which contains the keys r/a, r/b and r/c.
func reads(t *testing.T, o Options) *Cache {
	t.Helper()
	c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
	for _, key := range []string{"r/a", "r/b", "r/c", "x/a"} {
		if _, err := c.Put(t.Context(), store.Put{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	o.TTL = 10 * time.Minute
	x, err := Open(t.Context(), c, []store.KeyRange{store.Prefix("r/")}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close(context.Background()) })
	return x
}

// TestFailedReads checks that a failed read returns the error, is not retried, and leaves nothing
// in memory.
func TestFailedReads(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		x := reads(t, Options{})
		over, cancel := context.WithCancel(t.Context())
		cancel()
		fails := func(what, key, end string, fills uint64) {
			t.Helper()
			before := x.Stats().Fills
			if _, err := x.Range(over, store.KeyRange{Key: key, End: end}); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want canceled", what, err)
			}
			if got := x.Stats().Fills - before; got != fills {
				t.Errorf("%s: %d reads of the cluster, want %d", what, got, fills)
			}
		}
		end := store.Prefix("r/").End
		fails("a range", "r/", end, 1)
		fails("a key outside", "x/a", "", 1)
		if _, ok, err := Found(x.Get(t.Context(), "r/b")); !ok || err != nil {
			t.Fatalf("a key: %v, %v", ok, err)
		}
		fails("a range with one key cached", "r/", end, 2)
		if r, err := x.Range(t.Context(), store.KeyRange{Key: "r/", End: end}); err != nil || len(r.KVs) != 3 {
			t.Errorf("read %+v, %v", r, err)
		}
		if _, _, _, known := x.current.Load().view.Load().Range(rangeOf(store.KeyRange{Key: "r/", End: end})); !known {
			t.Error("the range that was read in pieces is not cached")
		}
		// While a read is in progress, the cache does not acknowledge invalidations in its range.
		if _, err := x.client.Put(t.Context(), store.Put{Key: "r/a"}); err != nil {
			t.Fatal(err)
		}
		if n := x.Stats().Invalidations; n != 0 {
			t.Errorf("%d invalidations of a key that only a failed read requested", n)
		}
	})
}

// TestReadsWhileNotOpen checks that a cache without an open link reads from the cluster and keeps
// nothing, or returns ErrNotHeld.
func TestReadsWhileNotOpen(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		for _, only := range []bool{false, true} {
			x := reads(t, Options{MemoryOnly: only})
			x.current.Load().Opening()
			_, ok, err := Found(x.Get(t.Context(), "r/a"))
			if ok == only || errors.Is(err, ErrNotHeld) != only {
				t.Errorf("MemoryOnly %v: read %v, %v", only, ok, err)
			}
			if n := x.Stats().Entries; n != 0 {
				t.Errorf("MemoryOnly %v: %d entries are kept", only, n)
			}
		}
	})
}

// keep reads a key until the cache keeps it. The leader may still be processing a write.
func keep(t *testing.T, x *Cache, key string) {
	t.Helper()
	for before := x.Stats().Kept; x.Stats().Kept == before; {
		if _, err := x.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUncachedReads checks reads while the cache cannot keep anything. A key is read once. A partly
// cached range is read at most twice: first its gaps, then the whole range. These reads are not
// sent as fills.
func TestUncachedReads(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		x := reads(t, Options{})
		keep(t, x, "r/b")
		l := x.current.Load()
		l.Opening()
		link := setLink(l, &fakeLink{}) // cannot send fills
		defer setLink(l, link)
		for end, want := range map[string]uint64{"": 1, store.Prefix("r/").End: 3} {
			before := x.Stats().Fills
			if _, err := x.Range(t.Context(), store.KeyRange{Key: "r/", End: end}); err != nil {
				t.Fatal(err)
			}
			if got := x.Stats().Fills - before; got != want {
				t.Errorf("up to %q: %d reads from the cluster, want %d", end, got, want)
			}
		}
	})
}

// TestUsedCopiesAreKept checks that a copy that has not been used since it was read is evicted
// first, and that a result larger than the limits is not kept.
func TestUsedCopiesAreKept(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		for name, use := range map[string]func(x *Cache) error{
			"a key": func(x *Cache) error {
				_, err := x.Get(t.Context(), "r/a")
				return err
			},
			"a range": func(x *Cache) error {
				_, err := x.Range(t.Context(), store.Key("r/a"))
				return err
			},
		} {
			x := reads(t, Options{MaxEntries: 2})
			if _, err := x.Range(t.Context(), store.Prefix("r/")); err != nil {
				t.Fatal(err)
			}
			if n := x.Stats().Kept; n != 0 {
				t.Errorf("%d results above the limits were kept", n)
			}
			keep(t, x, "r/a")
			keep(t, x, "r/b")
			if err := use(x); err != nil {
				t.Fatal(err)
			}
			keep(t, x, "r/c")
			if x := x.current.Load().index; x.find("r/a") == nil || x.find("r/b") != nil {
				t.Errorf("%s: the used copy was evicted, or the unused one was not", name)
			}
		}
	})
}

// TestWaitForFlight checks a read that waits for a flight. It ignores the flight's result if the
// flight failed or started before the read, and stops waiting when its own context ends.
func TestWaitForFlight(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		x := reads(t, Options{})
		l, r := x.current.Load(), rangeOf(store.Key("r/a"))
		set := func(f *flight) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.flights[r] = f
		}
		landed := make(chan struct{})
		close(landed)
		for _, f := range []struct {
			name  string
			err   error
			since uint64
			want  bool
		}{
			{"later", nil, 4, true},
			{"earlier", nil, 5, false},
			{"failed", client.ErrUnavailable, 4, false},
		} {
			set(&flight{number: 5, what: r, done: landed, err: f.err})
			if _, ok, err := l.fetch(t.Context(), r, f.since); ok != f.want || err != nil {
				t.Errorf("%s: %v, %v", f.name, ok, err)
			}
		}
		// This read has no result: a reader that used it would report that the key does not exist.
		f := &flight{number: 0, what: r, done: make(chan struct{})}
		set(f)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := x.Range(over, store.Key("r/a")); !errors.Is(err, context.Canceled) {
			t.Errorf("range: %v, want canceled", err)
		}
		read := rig.Async(func() (store.RangeResult, error) { return x.Range(t.Context(), store.Key("r/a")) })
		synctest.Wait() // waits for the flight
		l.mu.Lock()
		delete(l.flights, r)
		l.mu.Unlock()
		close(f.done)
		if a := <-read; a.Err != nil || len(a.Value.KVs) != 1 {
			t.Errorf("after an earlier flight: read %+v, %v", a.Value, a.Err)
		}
	})
}

// follows creates a follower of r/, which contains the key r/a, and stops its goroutines, so that
// the test can do their work.
func follows(t *testing.T) (*Follower, *client.Client) {
	t.Helper()
	return followsAt(t, inprocess.Run(t, 1))
}

func followsAt(t *testing.T, at []*inprocess.Member) (*Follower, *client.Client) {
	t.Helper()
	c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(at)...)
	for _, key := range []string{"r/a", "x/a"} {
		if _, err := c.Put(t.Context(), store.Put{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Follow(t.Context(), c, []store.KeyRange{store.Prefix("r/")}, FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	f.ctx, f.cancel = context.WithCancel(t.Context())
	t.Cleanup(f.cancel)
	return f, c
}

// TestFollowerReadsCluster checks that a follower with outdated or missing data reads from the
// cluster.
func TestFollowerReadsCluster(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		f, _ := follows(t) // closed, so its data is too old
		for _, key := range []string{"r/a", "x/a"} {
			if kv, ok, err := Found(f.Get(t.Context(), key)); !ok || err != nil || kv.Key != key {
				t.Errorf("%s: %+v, %v, %v", key, kv, ok, err)
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Range(over, store.Key("x/a")); !errors.Is(err, context.Canceled) {
			t.Errorf("range: %v, want canceled", err)
		}
	})
}

// TestFollowerWatches checks that watch applies events until its context ends, returns the reason,
// and closes the watcher. It does not start for a lost range.
func TestFollowerWatches(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		f, c := followsAt(t, m)
		ended := make(chan struct{}, 10)
		f.client = rig.Through(t, m[0], func(r *pb.Request) bool { return r.GetCancel() != 0 },
			func(int) *pb.Response { ended <- struct{}{}; return nil })
		p := f.parts[0]
		over := make(chan error, 1)
		go func() { over <- f.watch(p) }()
		if _, err := c.Put(t.Context(), store.Put{Key: "r/b"}); err != nil {
			t.Fatal(err)
		}
		for seen := false; !seen; {
			select {
			case err := <-over:
				t.Fatalf("the watch ended: %v", err)
			case <-time.After(time.Millisecond):
				kvs, _, known := f.join(p.what)
				seen = known && len(kvs) == 2
			}
		}
		f.cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("watch: %v, want canceled", err)
		}
		<-ended // the member has also received the end of the watch
		p.lost = true
		if err := f.watch(p); !errors.Is(err, errRolledBack) {
			t.Errorf("watch of a lost range: %v", err)
		}
	})
}

// TestFollowerOfClosedClient checks that a follower's watches end with its client, and that a
// failed probe does not invalidate its data.
func TestFollowerOfClosedClient(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		f, c := follows(t)
		c.Close()
		f.follow(f.parts[0]) // returns because the client is closed
		if err := f.watch(f.parts[0]); !errors.Is(err, client.ErrClosed) {
			t.Errorf("watch: %v, want ErrClosed", err)
		}
		f.probe()
		if p := f.parts[0]; p.lost || p.revision == 0 {
			t.Errorf("%+v", p)
		}
	})
}

// TestFollowerReloadsLostRanges checks that a range that is lost while it is being watched is read
// again and becomes valid (T34).
func TestFollowerReloadsLostRanges(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		f, err := Follow(t.Context(), c, []store.KeyRange{store.Prefix("r/")}, FollowOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		await := func(what string, is func() bool) {
			for is := is; ; <-time.After(time.Millisecond) {
				f.mu.Lock()
				ok := is()
				f.mu.Unlock()
				if ok {
					return
				}
				if t.Context().Err() != nil {
					t.Fatal(what)
				}
			}
		}
		await("the watch starts", func() bool { return f.parts[0].restart != nil })
		known := f.maxRevision()
		f.addProbe(probe{at: now(), revision: known - 1}, known)
		await("the range is read again", func() bool { return !f.parts[0].lost })
		if !f.valid() {
			t.Error("the follower is not valid")
		}
	})
}

// TestFollowerCloseWaits checks that none of a follower's code runs after Close has returned.
func TestFollowerCloseWaits(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		f, _ := follows(t)
		done := false
		f.all.Go(func() {
			<-f.ctx.Done()
			<-time.After(50 * time.Millisecond)
			done = true
		})
		f.Close()
		if !done {
			t.Error("Close returned too early")
		}
	})
}
