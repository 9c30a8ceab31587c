package cache

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/copies"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestHitTakesNoLock checks that a hit, even for a missing key, takes no lock and allocates
// nothing. The hit must succeed while the test holds the locks.
func TestHitTakesNoLock(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		ctx := t.Context()
		c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		all := store.Prefix("h/")
		x, err := Open(ctx, c, []store.KeyRange{all}, Options{TTL: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = x.Close(ctx) }()
		if _, err := c.Put(ctx, store.Put{Key: "h/a", Value: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		for { // until the key is kept: the leader may still be processing the put
			if _, err := x.Range(ctx, all); err != nil {
				t.Fatal(err)
			}
			if x.Stats().Kept > 0 {
				break
			}
		}
		for key, there := range map[string]bool{"h/a": true, "h/b": false} {
			if _, ok, err := Found(x.Get(ctx, key)); ok != there || err != nil {
				t.Fatalf("%q: %v, %v", key, ok, err)
			}
		}
		l := x.current.Load()
		fills := x.Stats().Fills
		l.mu.Lock()
		x.mu.Lock()
		for what, read := range map[string]func() bool{
			"key": func() bool {
				kv, ok, err := Found(x.Get(ctx, "h/a"))
				return ok && err == nil && string(kv.Value) == "1"
			},
			"missing key": func() bool {
				_, ok, err := Found(x.Get(ctx, "h/b"))
				return !ok && err == nil
			},
			"range": func() bool {
				r, err := x.Range(ctx, all)
				return len(r.KVs) == 1 && err == nil
			},
		} {
			ok := true
			if n := testing.AllocsPerRun(1000, func() { ok = ok && read() }); n != 0 || !ok {
				t.Errorf("%s: %v allocations, read %v", what, n, ok)
			}
		}
		x.mu.Unlock()
		l.mu.Unlock()
		if s := x.Stats(); s.Fills != fills {
			t.Errorf("%d reads went to the cluster, want none", s.Fills-fills)
		}
	})
}

// TestAwaitWhileReopening checks that opening a cache succeeds even if the cache is already being
// reopened because of a new leader.
func TestAwaitWhileReopening(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		ctx := t.Context()
		c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		x, err := Open(ctx, c, []store.KeyRange{store.Prefix("h/")}, Options{TTL: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = x.Close(ctx) }()
		l := x.current.Load()
		l.Opening()
		if err := l.await(ctx); err != nil {
			t.Errorf("await: %v", err)
		}
		if err := x.Err(); !errors.Is(err, ErrNotHeld) {
			t.Errorf("not open: Err is %v, want ErrNotHeld", err)
		}
	})
}

// TestNothingAfterEnd checks that nothing is answered from memory after the lease has ended. This
// holds even if the copies have not been dropped yet, for example after the process was paused (T2,
// C1).
func TestNothingAfterEnd(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		ctx := t.Context()
		var ahead atomic.Int64
		// The grace does not apply to caches, because another leader may have allowed a write in
		// the meantime.
		c := inprocess.Connect(t, client.Config{
			Grace: time.Hour,
			Now:   func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		all := store.Prefix("h/")
		x, err := Open(ctx, c, []store.KeyRange{all}, Options{TTL: 3 * time.Second, MemoryOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(ctx, store.Put{Key: "h/a"}); err != nil {
			t.Fatal(err)
		}
		l := x.current.Load()
		for l.index.find("h/a") == nil {
			if _, err := x.Range(ctx, all); err != nil {
				t.Fatal(err)
			}
		}
		l.mu.Lock() // so that the cache is not cleared
		ahead.Store(int64(3 * time.Second))
		_, _, _, known := l.view.Load().Range(keyrange.Range(all))
		if !known || l.index.find("h/a") == nil {
			t.Error("the copies are gone")
		}
		if _, err := x.Get(ctx, "h/a"); !errors.Is(err, ErrEnded) {
			t.Errorf("get: %v, want ErrEnded", err)
		}
		if _, err := x.Range(ctx, all); !errors.Is(err, ErrEnded) {
			t.Errorf("range: %v, want ErrEnded", err)
		}
		if errors.Is(l.lease.Err(), client.ErrJeopardy) {
			t.Error("the lease is in jeopardy, want it ended")
		}
		l.mu.Unlock()
		_ = x.Close(ctx)
	})
}

// TestEndsDuringRead checks that a copy found in memory is not returned if the lease has ended in
// the meantime (C1). In this test the lease usually ends while the reader waits for the lock, and
// the key does not exist in the cluster.
func TestEndsDuringRead(t *testing.T) {
	c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
	held, err := c.Grant(t.Context(), client.Grant{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	x := &Cache{client: c, o: Options{}.withDefaults(), ranges: []store.KeyRange{{Key: "h/a"}}}
	l, what := newIncarnation(x, held), rangeOf(store.Key("h/a"))
	x.current.Store(l)
	l.Opened(7)
	if !l.set.Complete(l.set.Begin(what), copies.Answer[store.KV]{
		Term: 7, Values: []store.KV{{Key: "h/a"}},
	}) {
		t.Fatal("the copy is not kept")
	}
	l.Opening()
	l.mu.Lock()
	read := rig.Async(func() (store.RangeResult, error) { return x.Range(t.Context(), store.Key("h/a")) })
	<-time.After(20 * time.Millisecond)
	held.Close()
	l.mu.Unlock()
	if a := <-read; a.Err != nil || len(a.Value.KVs) != 0 {
		t.Errorf("read %+v, %v", a.Value, a.Err)
	}
}

// TestFlightBeforeRead checks that a read does not share the result of a flight that started before
// the read. That result may be older than a write acknowledged in between (C1).
func TestFlightBeforeRead(t *testing.T) {
	ctx := t.Context()
	x := &Cache{}
	l := &incarnation{cache: x, flights: make(map[keyrange.Range]*flight)}
	r := keyrange.Range{Key: "h/a"}
	f := &flight{number: x.flightSeq.Add(1), what: r, done: make(chan struct{})}
	l.flights[r] = f
	close(f.done)
	if _, ok, err := l.fetch(ctx, r, x.flightSeq.Load()); ok || err != nil {
		t.Errorf("used an earlier flight: %v, %v", ok, err)
	}
	if _, ok, err := l.fetch(ctx, r, x.flightSeq.Load()-1); !ok || err != nil {
		t.Errorf("did not use a later flight: %v, %v", ok, err)
	}
}
