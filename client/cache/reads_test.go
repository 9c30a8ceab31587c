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

// reads opens a cache of r/, in which there are the keys r/a, r/b and r/c.
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

// TestFailedReads: a read that fails says so, is not tried again by itself, and leaves nothing
// behind in memory.
func TestFailedReads(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		x := reads(t, Options{})
		over, cancel := context.WithCancel(t.Context())
		cancel()
		fails := func(what, key, end string, fills uint64) {
			t.Helper()
			before := x.Stats().Fills
			if _, err := x.Range(over, store.KeyRange{Key: key, End: end}); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: read with %v", what, err)
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
		fails("a range of which a key is there", "r/", end, 2)
		if r, err := x.Range(t.Context(), store.KeyRange{Key: "r/", End: end}); err != nil || len(r.KVs) != 3 {
			t.Errorf("read %+v, %v", r, err)
		}
		if _, _, _, known := x.current.Load().view.Load().Range(rangeOf(store.KeyRange{Key: "r/", End: end})); !known {
			t.Error("readers miss a value that was read in parts")
		}
		// During a read, the cache acknowledges no invalidation in its range.
		if _, err := x.client.Put(t.Context(), store.Put{Key: "r/a"}); err != nil {
			t.Fatal(err)
		}
		if n := x.Stats().Invalidations; n != 0 {
			t.Errorf("the cluster had to ask %d times for what a read that failed wanted", n)
		}
	})
}

// TestReadsWhileNotOpen: while the cluster does not know what a cache has, the cache reads from
// the cluster and keeps nothing, or says that it holds nothing.
func TestReadsWhileNotOpen(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		for _, only := range []bool{false, true} {
			x := reads(t, Options{MemoryOnly: only})
			x.current.Load().Opening()
			_, ok, err := Found(x.Get(t.Context(), "r/a"))
			if ok == only || errors.Is(err, ErrNotHeld) != only {
				t.Errorf("from memory only: %v: read %v, %v", only, ok, err)
			}
			if n := x.Stats().Entries; n != 0 {
				t.Errorf("from memory only: %v: %d are kept", only, n)
			}
		}
	})
}

// keep reads a key until it is kept: the leader may be busy still with a write.
func keep(t *testing.T, x *Cache, key string) {
	t.Helper()
	for before := x.Stats().Kept; x.Stats().Kept == before; {
		if _, err := x.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUncachedReads: while nothing can be kept a key is read once, and a range of which a
// part is there twice at most: first what is missing, and then all of it. The cluster is told of
// none of these reads that they are for a cache.
func TestUncachedReads(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		x := reads(t, Options{})
		keep(t, x, "r/b")
		l := x.current.Load()
		l.Opening()
		link := setLink(l, &fakeLink{}) // which cannot fill
		defer setLink(l, link)
		for end, want := range map[string]uint64{"": 1, store.Prefix("r/").End: 3} {
			before := x.Stats().Fills
			if _, err := x.Range(t.Context(), store.KeyRange{Key: "r/", End: end}); err != nil {
				t.Fatal(err)
			}
			if got := x.Stats().Fills - before; got != want {
				t.Errorf("up to %q: %d reads of the cluster, want %d", end, got, want)
			}
		}
	})
}

// TestUsedCopiesAreKept: of what a cache has, that goes first which nobody has used since it was read. What
// is larger than all that it may have is not kept.
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
				t.Errorf("%d values above the size limit were kept", n)
			}
			keep(t, x, "r/a")
			keep(t, x, "r/b")
			if err := use(x); err != nil {
				t.Fatal(err)
			}
			keep(t, x, "r/c")
			if x := x.current.Load().index; x.find("r/a") == nil || x.find("r/b") != nil {
				t.Errorf("%s: what was used is gone, or what was not is there", name)
			}
		}
	})
}

// TestWaitForFlight: a read that waits for another one's is not served by one that failed, or
// began before, and waits no longer than its own context.
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
		f := &flight{number: 0, what: r, done: make(chan struct{})} // as if there were no such key
		set(f)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := x.Range(over, store.Key("r/a")); !errors.Is(err, context.Canceled) {
			t.Errorf("waited with %v", err)
		}
		read := rig.Async(func() (store.RangeResult, error) { return x.Range(t.Context(), store.Key("r/a")) })
		synctest.Wait() // it waits
		l.mu.Lock()
		delete(l.flights, r)
		l.mu.Unlock()
		close(f.done)
		if a := <-read; a.Err != nil || len(a.Value.KVs) != 1 {
			t.Errorf("after an earlier flight: read %+v, %v", a.Value, a.Err)
		}
	})
}

// follows begins to follow r/, in which there is r/a, and stops what goes on for it by itself. The
// test may do that by hand then.
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

// TestFollowerReadsCluster: what a follower does not know well enough it reads from the cluster,
// unless it is not to.
func TestFollowerReadsCluster(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		f, _ := follows(t) // it was closed: all is too old
		for _, key := range []string{"r/a", "x/a"} {
			if kv, ok, err := Found(f.Get(t.Context(), key)); !ok || err != nil || kv.Key != key {
				t.Errorf("%s: %+v, %v, %v", key, kv, ok, err)
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Range(over, store.Key("x/a")); !errors.Is(err, context.Canceled) {
			t.Errorf("read with %v", err)
		}
	})
}

// TestFollowerWatches: a watch takes in what is told until its context ends, says why it ended, and
// is over. It does not begin for a range that the cluster has taken back.
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
				t.Fatalf("the watch is over: %v", err)
			case <-time.After(time.Millisecond):
				kvs, _, known := f.join(p.what)
				seen = known && len(kvs) == 2
			}
		}
		f.cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		<-ended // at the member, too
		p.lost = true
		if err := f.watch(p); !errors.Is(err, errRolledBack) {
			t.Errorf("a range that is lost: %v", err)
		}
	})
}

// TestFollowerOfClosedClient: with its client a follower's watches are over, and that the cluster
// does not answer means nothing for what it has.
func TestFollowerOfClosedClient(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		f, c := follows(t)
		c.Close()
		f.follow(f.parts[0]) // returns
		if err := f.watch(f.parts[0]); !errors.Is(err, client.ErrClosed) {
			t.Errorf("watched with %v", err)
		}
		f.probe()
		if p := f.parts[0]; p.lost || p.revision == 0 {
			t.Errorf("%+v", p)
		}
	})
}

// TestFollowerReloadsLostRanges (T34): a range that is lost while it is watched is read again,
// and counts then.
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
		await("it watches", func() bool { return f.parts[0].restart != nil })
		told := f.maxRevision()
		f.addProbe(probe{at: now(), revision: told - 1}, told)
		await("it is read again", func() bool { return !f.parts[0].lost })
		if !f.valid() {
			t.Error("it does not count")
		}
	})
}

// TestFollowerCloseWaits: nothing of a follower runs when Close has returned.
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
			t.Error("Close has returned before")
		}
	})
}
