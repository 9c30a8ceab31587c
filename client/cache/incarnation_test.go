package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/cachelink"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/test/inprocess"
)

// TestOldIncarnationsFreed checks that no reference keeps an old incarnation in memory.
func TestOldIncarnationsFreed(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		at := inprocess.Endpoints(inprocess.Run(t, 1))
		c := inprocess.Connect(t, client.Config{RenewAfter: 0.02}, at...) // to detect the end soon
		other := inprocess.Connect(t, client.Config{}, at...)
		x, err := Open(t.Context(), c, []store.KeyRange{store.Prefix("o/")}, Options{
			TTL: 30 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close(t.Context())
		var old []weak.Pointer[incarnation]
		for range 5 {
			old = append(old, weak.Make(x.current.Load()))
			ref := x.Lease().Ref()
			if err := other.Revoke(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			reopened(x, ref)
		}
		time.Sleep(time.Minute) // links stay open for a TTL
		runtime.GC()
		for i, l := range old {
			if l.Value() != nil {
				t.Errorf("incarnation %d is still there", i)
			}
		}
	})
}

// reopened waits until a cache has a new lease.
func reopened(x *Cache, old leases.Ref) {
	for x.Lease().Ref() == old {
		<-time.After(5 * time.Millisecond)
	}
}

// spy is a link that checks at each acknowledgment what readers can still find.
type spy struct {
	cachelink.Link
	t    *testing.T
	l    *incarnation
	what keyrange.Range
	acks atomic.Int32 // acknowledgments that reported a drop
}

func (s *spy) Ack(a cachelink.Ack) {
	if a.Seq != 0 || len(a.Dropped) > 0 {
		s.acks.Add(1)
		if kvs, _, _, known := s.l.view.Load().Range(s.what); known {
			s.t.Errorf("%+v is acknowledged, but readers of the range find %+v", a, kvs)
		}
		if e := s.l.index.find(s.what.Key + "a"); e != nil {
			s.t.Errorf("%+v is acknowledged, but readers of the key find %+v", a, e.kv)
		}
		for _, r := range a.Dropped {
			if kvs, _, _, known := s.l.view.Load().Range(r); known {
				s.t.Errorf("%q is reported as dropped, but readers find %+v", r, kvs)
			}
		}
	}
	s.Link.Ack(a)
}

// TestDroppedBeforeAcknowledged checks that once a cache reports a drop, no reader finds the key or
// the range in memory (C1). It covers drops caused by a write by another client, by a write by the
// cache's own client, and by closing the cache.
func TestDroppedBeforeAcknowledged(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		ctx := t.Context()
		at := inprocess.Endpoints(inprocess.Run(t, 1))
		c := inprocess.Connect(t, client.Config{}, at...)
		other := inprocess.Connect(t, client.Config{}, at...)
		x, err := Open(ctx, c, []store.KeyRange{store.Prefix("g/")}, Options{TTL: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		l := x.current.Load()
		s := &spy{t: t, l: l, what: rangeOf(store.KeyRange{Key: "g/", End: store.Prefix("g/").End})}
		s.Link = setLink(l, s)
		put := func(by *client.Client) func() error {
			return func() error {
				_, err := by.Put(ctx, store.Put{Key: "g/a", Value: []byte("1")})
				return err
			}
		}
		for _, drop := range []struct {
			name string
			do   func() error
		}{
			{"another client's write", put(other)},
			{"its own client's write", put(c)},
			{"close", func() error { return x.Close(ctx) }},
		} {
			for { // until the range is kept
				if _, err := x.Range(ctx, store.KeyRange(s.what)); err != nil {
					t.Fatal(err)
				}
				if _, _, _, known := l.view.Load().Range(s.what); known {
					break
				}
			}
			before := s.acks.Load()
			if err := drop.do(); err != nil {
				t.Fatal(err)
			}
			if s.acks.Load() == before {
				t.Errorf("%s: nothing was acknowledged", drop.name)
			}
		}
	})
}

// TestEvictedBeforeReported checks that once a cache reports an eviction, no reader finds the copy
// (C1). The test reads keys through a cache that can keep only one, until the cache reports an
// eviction.
func TestEvictedBeforeReported(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		x := reads(t, Options{MaxEntries: 1})
		l := x.current.Load()
		s := &spy{t: t, l: l, what: rangeOf(store.KeyRange{Key: "r/", End: store.Prefix("r/").End})}
		s.Link = setLink(l, s)
		for i := 0; s.acks.Load() == 0; i++ {
			if _, _, err := Found(x.Get(t.Context(), fmt.Sprint("r/", i))); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// setLink replaces the link of an incarnation and returns the old link.
func setLink(l *incarnation, link cachelink.Link) (old cachelink.Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, l.link = l.link, link
	return old
}

// TestEndedWhileOpening checks that opening a cache fails promptly if its lease ends in the
// meantime.
func TestEndedWhileOpening(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		held, err := c.Grant(t.Context(), client.Grant{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		l := newIncarnation(&Cache{client: c, o: Options{}.withDefaults()}, held)
		held.Close()
		l.Opened(1) // as called by the link
		over := make(chan error, 1)
		go func() { over <- l.await(t.Context()) }()
		select {
		case err := <-over:
			if !errors.Is(err, ErrEnded) || !errors.Is(err, client.ErrClosed) {
				t.Errorf("await: %v, want ErrEnded and ErrClosed", err)
			}
		case <-time.After(time.Minute):
			t.Error("await does not return")
		}
	})
}

// TestAllKeys checks that the range of all keys can start at the empty key.
func TestAllKeys(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		if _, err := c.Put(t.Context(), store.Put{Key: "\x00"}); err != nil {
			t.Fatal(err)
		}
		end := store.Prefix("").End
		for name, open := range map[string]func([]store.KeyRange) (Reader, func(), error){
			"cache": func(all []store.KeyRange) (Reader, func(), error) {
				x, err := Open(t.Context(), c, all, Options{MemoryOnly: true})
				return x, func() { _ = x.Close(t.Context()) }, err
			},
			"follower": func(all []store.KeyRange) (Reader, func(), error) {
				f, err := Follow(t.Context(), c, all, FollowOptions{MaxAge: time.Second})
				return f, f.Close, err
			},
		} {
			r, over, err := open([]store.KeyRange{{End: end}})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got, err := r.Range(t.Context(), store.KeyRange{Key: "", End: end}); err != nil || len(got.KVs) != 1 {
				t.Errorf("%s: read %+v, %v", name, got, err)
			}
			if f, ok := r.(*Follower); ok { // until a probe has reset its age
				for first := f.asOf.Load(); *f.asOf.Load() == *first; {
					<-time.After(5 * time.Millisecond)
				}
			}
			over()
		}
	})
}

// TestRefusedWhileOpening checks that opening a cache returns the cluster's reason if it is
// refused. After a temporary refusal, opening is retried until the context ends.
func TestRefusedWhileOpening(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		held, err := c.Grant(t.Context(), client.Grant{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for _, x := range []struct{ refused, want error }{
			{client.ErrUnavailable, context.Canceled},
			{client.ErrUnknownOutcome, context.Canceled},
			{client.ErrNotLoggedIn, context.Canceled},
			{client.ErrInvalid, client.ErrInvalid},
		} {
			l := newIncarnation(&Cache{client: c, o: Options{}.withDefaults()}, held)
			ctx := t.Context()
			if l.Refused(x.refused); x.want == context.Canceled {
				ctx = over
			}
			if l.isReady != (ctx != over) { // otherwise await could return either
				t.Errorf("refused with %v: ready: %v", x.refused, l.isReady)
			}
			if err := l.await(ctx); !errors.Is(err, x.want) {
				t.Errorf("refused with %v: await: %v", x.refused, err)
			}
			if err := l.notOpen(); !errors.Is(err, x.refused) {
				t.Errorf("refused with %v: notOpen: %v", x.refused, err)
			}
			l.close() // even without a link
		}
	})
}
