package cache

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/copies"
	"leasehold.dev/test/inprocess"
)

// TestCloseDropsAll checks that Close reports that everything was dropped before it revokes the
// lease, so no write waits even if the revocation fails. The caller gets the revocation's error,
// and only once.
func TestCloseDropsAll(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		all := []store.KeyRange{store.Prefix("c/")}
		x, err := Open(t.Context(), c, all, Options{})
		if err != nil {
			t.Fatal(err)
		}
		l := x.current.Load()
		s := &spy{t: t, l: l, what: rangeOf(store.KeyRange{Key: "c/", End: store.Prefix("c/").End})}
		s.Link = setLink(l, s)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := x.Close(over); !errors.Is(err, context.Canceled) {
			t.Errorf("Close: %v, want canceled", err)
		}
		if n := s.acks.Load(); n != 1 {
			t.Errorf("%d reports that everything was dropped, want 1", n)
		}
		for range 2 {
			if err := x.Close(over); err != nil {
				t.Errorf("second Close: %v", err)
			}
		}
		if err := l.lease.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestClosedCacheStaysClosed checks that an incarnation that becomes ready after its cache was
// closed is abandoned and its lease revoked.
func TestClosedCacheStaysClosed(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		x, err := Open(t.Context(), c, []store.KeyRange{store.Prefix("c/")}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		late, err := x.newIncarnation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x.replace(late)
		if x.current.Load() == late || x.Stats().Reopened != 0 {
			t.Error("a closed cache reopened")
		}
		if late.lease.Err() == nil || late.notOpen() == nil {
			t.Errorf("lease: %v; open: %v", late.lease.Err(), late.notOpen())
		}
	})
}

// TestReopenRetries checks that a cache that fails to reopen calls Reopen with the error and
// retries until it succeeds. Here it fails at first because another client holds its name.
func TestReopenRetries(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		at := inprocess.Endpoints(inprocess.Run(t, 1))
		c := inprocess.Connect(t, client.Config{}, at...)
		other := inprocess.Connect(t, client.Config{}, at...)
		var taken *client.Lease
		var whys []error
		reopen := func(why error) bool {
			whys = append(whys, why)
			switch len(whys) {
			case 1:
				l, err := other.Grant(t.Context(), client.Grant{TTL: time.Minute, Name: "mine"})
				if err != nil {
					t.Error(err)
				}
				taken = l
			case 2:
				if err := taken.Revoke(t.Context()); err != nil {
					t.Error(err)
				}
			}
			return true
		}
		x, err := Open(t.Context(), c, []store.KeyRange{store.Prefix("c/")},
			Options{Name: "mine", Reopen: reopen})
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint64(2) {
			ref := x.Lease().Ref()
			if err := other.Revoke(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			reopened(x, ref)
			if got := x.Stats().Reopened; got != n+1 {
				t.Errorf("reopened %d times, want %d", got, n+1)
			}
		}
		if err := x.Close(t.Context()); err != nil { // waits for Reopen to return
			t.Fatal(err)
		}
		var lost []bool
		for _, why := range whys {
			lost = append(lost, errors.Is(why, client.ErrLost))
		}
		if !slices.Equal(lost, []bool{true, false, true}) {
			t.Errorf("Reopen was called with %v", whys)
		}
	})
}

// TestClosedClientNeverReopens checks that a cache ends with its client, and that Reopen is not
// called.
func TestClosedClientNeverReopens(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		asked := 0
		x, err := Open(t.Context(), c, []store.KeyRange{store.Prefix("c/")},
			Options{Reopen: func(error) bool { asked++; return false }})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		<-x.Lease().Context().Done()
		_ = x.Close(t.Context()) // fails: the client cannot revoke the lease
		err = x.Err()
		if asked != 0 || !errors.Is(err, ErrEnded) || !errors.Is(err, client.ErrClosed) {
			t.Errorf("Reopen was called %d times; Err: %v", asked, err)
		}
	})
}

// TestAge checks that the age of data is measured by the clock that advanced more. The monotonic
// clock stops while a machine is suspended, and a wall clock can be set back.
func TestAge(t *testing.T) {
	n := time.Now()
	for name, m := range map[string]moment{
		"suspended": {at: n, wall: n.Add(-time.Hour).UnixNano()},
		"set back":  {at: n.Add(-time.Hour), wall: n.UnixNano()},
		"usual":     {at: n.Add(-time.Hour), wall: n.Add(-time.Hour).UnixNano()},
	} {
		if got := m.age(n); got != time.Hour {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestFollowOptions checks that MaxAge defaults to five seconds and is at least half a second.
// Follow fails if it cannot read the ranges.
func TestFollowOptions(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		all := []store.KeyRange{store.Prefix("f/")}
		for asked, want := range map[time.Duration]time.Duration{
			0: 5 * time.Second, time.Millisecond: 500 * time.Millisecond, time.Hour: time.Hour,
		} {
			f, err := Follow(t.Context(), c, all, FollowOptions{MaxAge: asked})
			if err != nil {
				t.Fatal(err)
			}
			if f.o.MaxAge != want {
				t.Errorf("MaxAge %v became %v, want %v", asked, f.o.MaxAge, want)
			}
			f.Close()
			if age, ok := f.Age(); ok {
				t.Errorf("age after close: %v", age)
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Follow(over, c, all, FollowOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("Follow: %v, want canceled", err)
		}
	})
}

// TestFollowerReadsMemory checks reads that a follower answers from memory: existing, missing and
// deleted keys, and a range that changes have split into parts. With MemoryOnly, a read fails if
// the data is missing, too old, or outside the ranges.
func TestFollowerReadsMemory(t *testing.T) {
	ctx := t.Context()
	f := &Follower{o: FollowOptions{MaxAge: time.Hour, MemoryOnly: true}, index: newIndex()}
	f.parts = []*part{{what: rangeOf(store.KeyRange{Key: "a", End: "c"})}}
	f.set = copies.New(copies.Config[store.KV]{
		Holds: rangesOf([]store.KeyRange{{Key: "a", End: "c"}}), MaxEntries: 100, MaxBytes: 1 << 20,
		Key:     func(kv *store.KV) string { return kv.Key },
		Size:    func(kv *store.KV) int { return len(kv.Key) + len(kv.Value) },
		NewMark: func() copies.Mark { return new(mark) },
		Mirror:  f.index,
	})
	f.set.Opened(1)
	f.view.Store(f.set.View())
	if _, err := f.Get(ctx, "a1"); !errors.Is(err, ErrStale) {
		t.Errorf("before the first load: %v", err)
	}
	f.keepLocked(f.parts[0].what, 5, []store.KV{{Key: "a1"}, {Key: "a2"}})
	f.parts[0].revision, f.parts[0].asOf = 5, now()
	f.apply(f.parts[0], &store.Update{Revision: 7, Events: []store.Event{
		{KV: store.KV{Key: "a2", ModRevision: 6}, Delete: true},
		{KV: store.KV{Key: "a3", ModRevision: 7, Value: []byte("3")}},
	}})
	for key, want := range map[string]string{"a1": "", "a3": "3"} {
		if kv, ok, err := Found(f.Get(ctx, key)); !ok || err != nil || string(kv.Value) != want {
			t.Errorf("%s: %+v, %v, %v", key, kv, ok, err)
		}
	}
	for _, key := range []string{"a2", "a4"} {
		if kv, ok, err := Found(f.Get(ctx, key)); ok || err != nil {
			t.Errorf("%s: %+v, %v, %v", key, kv, ok, err)
		}
	}
	if r, err := f.Range(ctx, store.KeyRange{Key: "a", End: "c"}); err != nil || len(r.KVs) != 2 {
		t.Errorf("range: %+v, %v", r, err)
	}
	if _, err := f.Range(ctx, store.KeyRange{Key: "a", End: "d"}); !errors.Is(err, ErrNotHeld) {
		t.Errorf("outside the ranges: %v", err)
	}
	f.o.MaxAge = 0
	if _, err := f.Range(ctx, store.KeyRange{Key: "a", End: "c"}); !errors.Is(err, ErrStale) {
		t.Errorf("too old: %v", err)
	}
}
