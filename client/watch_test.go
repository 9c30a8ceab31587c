package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
)

// watchResponse returns a watch response with one event for each key, all at the same revision.
func watchResponse(id uint64, revision int64, fragment bool, keys ...string) *pb.Response {
	m := &pb.WatchResponse{Header: &pb.Header{Revision: revision}, Fragment: fragment}
	for _, k := range keys {
		m.Events = append(m.Events, &pb.Event{
			Kv: &pb.KeyValue{Key: []byte(k), ModRevision: revision},
		})
	}
	return &pb.Response{Id: id, More: true, Body: &pb.Response_Watch{Watch: m}}
}

// watchID returns the ID and the start revision of the last watch request.
func (f *fake) watchID() (id uint64, from int64) {
	for _, r := range f.requests() {
		if w := r.GetWatch(); w != nil {
			id, from = r.Id, w.StartRevision
		}
	}
	return id, from
}

func watch(t *testing.T, c *Client, from int64) *Watcher {
	t.Helper()
	w, err := c.Watch(t.Context(), store.Watch{Key: "k", From: from})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func next(t *testing.T, w *Watcher) store.Update {
	t.Helper()
	u, err := w.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestT14 checks that the fragments of a revision are delivered once the revision is complete. If
// the stream breaks in between, the new watch delivers the whole revision.
func TestT14(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		w := watch(t, c, 0) // the store is at revision 1
		id, _ := f.watchID()
		f.last().say(watchResponse(id, 5, true, "a", "b"), watchResponse(id, 5, true, "c"))
		synctest.Wait()
		if len(w.queue) > 0 {
			t.Fatalf("got part of a revision: %v", w.queue)
		}
		close(f.last().cut)
		synctest.Wait()
		id, from := f.watchID()
		if from != 2 || len(f.opened) != 2 {
			t.Fatalf("resumed from %d", from)
		}
		f.last().say(watchResponse(id, 5, true, "a", "b"), watchResponse(id, 5, false, "c"))
		if u := next(t, w); u.Revision != 5 || len(u.Events) != 3 || u.Events[2].KV.Key != "c" {
			t.Errorf("got %+v", u)
		}
		f.last().say(watchResponse(id, 9, false)) // everything up to revision 9 has been sent
		synctest.Wait()
		close(f.last().cut)
		synctest.Wait()
		if _, from := f.watchID(); from != 10 {
			t.Errorf("resumed from %d", from)
		}
		w.Close()
		_, err := w.Next(t.Context())
		want(t, err, ErrClosed)
		synctest.Wait()
		list := f.requests()
		if id, _ := f.watchID(); list[len(list)-1].GetCancel() != id {
			t.Errorf("the member did not get the request: %v", list[len(list)-1])
		}
	})
}

// TestWatchPastRevision checks that the store's revision at the start of a watch does not move the
// watch past the requested revision.
func TestWatchPastRevision(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		f.set(func() {
			f.answer = func(_ *fakeStream, r *pb.Request) []*pb.Response {
				return []*pb.Response{watchResponse(r.Id, 100, false)}
			}
		})
		w := watch(t, c, 7)
		defer w.Close()
		close(f.last().cut)
		synctest.Wait()
		if _, from := f.watchID(); from != 7 {
			t.Errorf("resumed from %d", from)
		}
	})
}

// TestCompacted checks that a watch reports when its revisions have been compacted, both at its
// start and later.
func TestCompacted(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		w := watch(t, c, 0)
		f.set(func() {
			f.answer = func(_ *fakeStream, r *pb.Request) []*pb.Response {
				return refuse(r, pb.Reason_REASON_COMPACTED)
			}
			close(f.opened[0].cut)
		})
		_, err := w.Next(t.Context())
		want(t, err, ErrCompacted)
		_, err = c.Watch(t.Context(), store.Watch{Key: "k", From: 1})
		want(t, err, ErrCompacted)
	})
}

// TestWatchRefused checks that a watch that is refused temporarily is retried. If its context ends
// first, there is no watch.
func TestWatchRefused(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		tries := 0
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if tries++; tries < 4 {
					return refuse(r, pb.Reason_REASON_UNAVAILABLE)
				}
				return f.obey(s, r)
			}
		})
		watch(t, c, 0).Close()
		f.set(func() { f.answer = silent })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Watch(ctx, store.Watch{Key: "k"})
		want(t, err, context.DeadlineExceeded)
		if len(c.mux.followers) != 0 {
			t.Error("it is there")
		}
	})
}

// TestSlowWatcher checks that events remain with the cluster while a program is slow, and are
// requested later. No events are lost.
func TestSlowWatcher(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		w := watch(t, c, 0)
		id, _ := f.watchID()
		for rev := range int64(maxEvents + 10) {
			f.last().say(watchResponse(id, rev+2, false, "k"))
			synctest.Wait()
		}
		if list := f.requests(); list[len(list)-1].GetCancel() != id {
			t.Fatal("the watch was not given up")
		}
		for rev := range int64(maxEvents) {
			if u := next(t, w); u.Revision != rev+2 {
				t.Fatalf("got %+v after %d", u, rev+1)
			}
		}
		synctest.Wait()
		if _, from := f.watchID(); from != maxEvents+2 {
			t.Errorf("it goes on from %d", from)
		}
		w.Close()
	})
}

// TestIdleWatchMoves checks that a client that only watches detects that its member has stopped.
func TestIdleWatchMoves(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		w := watch(t, c, 0)
		first := f.last()
		f.set(func() { f.frozen[first.name] = true })
		pass(10 * time.Second)
		if f.last() == first {
			t.Fatal("it waits at a member that says nothing")
		}
		id, _ := f.watchID()
		f.last().say(watchResponse(id, 2, false, "k"))
		if u := next(t, w); u.Revision != 2 {
			t.Errorf("got %+v", u)
		}
	})
}

// history is the history of a store that is watched in a model test. Revision r has events for keys
// 0 to sizes[r]-1.
type history struct {
	rng   *rand.Rand
	sizes []int
}

// answer answers a watch with some of its events, possibly split into several responses. It
// sometimes breaks the stream in between.
func (h *history) answer(s *fakeStream, r *pb.Request) []*pb.Response {
	if r.GetWatch() == nil {
		return nil
	}
	out := []*pb.Response{watchResponse(r.Id, int64(len(h.sizes)-1), false)}
	breaks := h.rng.IntN(60)
	for rev := r.GetWatch().StartRevision; rev < int64(len(h.sizes)); rev++ {
		for k := 0; k < h.sizes[rev]; {
			if breaks--; breaks < 0 {
				time.AfterFunc(time.Millisecond, func() { close(s.cut) })
				return out
			}
			var keys []string
			for n := 1 + h.rng.IntN(3); n > 0 && k < h.sizes[rev]; n-- {
				keys = append(keys, fmt.Sprint(k))
				k++
			}
			out = append(out, watchResponse(r.Id, rev, k < h.sizes[rev], keys...))
		}
	}
	return out
}

// TestW1 checks that a watch receives every event once and in order, and each revision as a whole,
// even if streams break often (W1).
func TestW1(t *testing.T) {
	for seed := range uint64(30) {
		inBubble(t, 3, Config{}, func(t *testing.T, c *Client, f *fake) {
			h := &history{rng: rand.New(rand.NewPCG(seed, 2)), sizes: []int{0}}
			for range 200 {
				h.sizes = append(h.sizes, 1+h.rng.IntN(6))
			}
			f.set(func() { f.answer = h.answer })
			w := watch(t, c, 1)
			for rev := 1; rev < len(h.sizes); {
				u := next(t, w)
				for _, size := range h.sizes[rev : u.Revision+1] {
					for k := range size {
						if e := u.Events[0]; e.KV.Key != fmt.Sprint(k) || e.KV.ModRevision != int64(rev) {
							t.Fatalf("seed %d: %+v, want key %d of revision %d", seed, e, k, rev)
						}
						u.Events = u.Events[1:]
					}
					rev++
				}
				if len(u.Events) > 0 {
					t.Fatalf("seed %d: more than there is: %+v", seed, u)
				}
			}
			w.Close()
		})
	}
}

// TestTooManyWatches checks that a client has no more watches than its stream allows.
func TestTooManyWatches(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		for range maxWatches {
			watch(t, c, 0)
		}
		_, err := c.Watch(t.Context(), store.Watch{Key: "k"})
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("one more: %v", err)
		}
	})
}

// TestQuietWatch checks that a watch without events tracks the store's revision. It can then resume
// on another member from that revision instead of its start revision, which may have been
// compacted. The program is not notified.
func TestQuietWatch(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		w := watch(t, c, 0)
		list := f.requests()
		if ms := list[len(list)-1].GetWatch().ProgressMs; ms != progressInterval.Milliseconds() {
			t.Errorf("got progress every %d ms", ms)
		}
		id, _ := f.watchID()
		f.last().say(watchResponse(id, 1000, false))
		synctest.Wait()
		close(f.last().cut)
		synctest.Wait()
		id, from := f.watchID()
		if from != 1001 {
			t.Errorf("it goes on from %d", from)
		}
		f.last().say(watchResponse(id, 1001, false, "k"))
		if u := next(t, w); u.Revision != 1001 || len(u.Events) != 1 {
			t.Errorf("got %+v", u)
		}
		w.Close()
	})
}

// TestSlowWatcherBytes checks that the size of buffered events is also limited.
func TestSlowWatcherBytes(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		w := watch(t, c, 0)
		id, _ := f.watchID()
		const big = 1 << 20
		n := int64(0)
		given := func() bool {
			list := f.requests()
			return list[len(list)-1].GetCancel() == id
		}
		for ; !given() && n < 1000; n++ {
			r := watchResponse(id, n+2, false, "k")
			r.GetWatch().Events[0].PrevKv = &pb.KeyValue{Value: make([]byte, big)}
			f.last().say(r)
			synctest.Wait()
		}
		if n < maxEventBytes/big/2 || n > maxEventBytes/big {
			t.Errorf("given up after %d events of a megabyte", n)
		}
		for rev := range n {
			if u := next(t, w); u.Revision != rev+2 {
				t.Fatalf("got %+v after %d", u, rev+1)
			}
		}
		synctest.Wait()
		if _, from := f.watchID(); from != n+2 {
			t.Errorf("it goes on from %d", from)
		}
		id, _ = f.watchID()
		f.last().say(watchResponse(id, n+2, false, "k"), watchResponse(id, n+3, false, "k"))
		next(t, w)
		next(t, w)
		if given() {
			t.Error("it was given up though the program follows")
		}
		w.Close()
	})
}
