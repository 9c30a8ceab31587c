package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/internal/keyrange"
)

// drain polls until there are no more batches. It returns all events and the last revision sent.
func drain(t *testing.T, s *Stream[*event]) (evs []*event, rev int64) {
	t.Helper()
	for {
		b, ok := s.Poll()
		if !ok {
			return evs, rev
		}
		if b.Err != nil {
			t.Fatal(b.Err)
		}
		if b.Kind == Changed {
			evs, rev = append(evs, b.Events...), b.Revision
		}
	}
}

func mustWatch(t testing.TB, s *Stream[*event], r Request) int64 {
	t.Helper()
	id, err := s.Watch(r)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestResume (W1, T14) checks that a client that reconnects after every batch, at the revision
// after it, receives every event once. Revisions are larger than batches and queues.
func TestResume(t *testing.T) {
	st := newStore(tight)
	var seen []*event
	from := int64(1)
	for round := range 200 {
		s := st.hub.NewStream()
		mustWatch(t, s, Request{Key: "a", End: "c", From: from})
		for i := range round % 4 {
			evs := make([]*event, 1+round%9)
			for j := range evs {
				evs[j] = put(fmt.Sprintf("%c%d", "abc"[(i+j)%3], j))
			}
			st.write(evs...)
			if i%2 == 0 {
				st.hub.Distribute()
			}
		}
		for {
			b, ok := s.Poll()
			if !ok {
				break
			}
			if b.Kind == Changed {
				seen, from = append(seen, b.Events...), b.Revision+1
				break
			}
		}
		s.Close()
	}
	s := st.hub.NewStream()
	mustWatch(t, s, Request{Key: "a", End: "c", From: from})
	evs, _ := drain(t, s)
	seen = append(seen, evs...)
	v := st.cur.Load()
	if want := v.truth(Request{Key: "a", End: "c"}, 1, v.rev); !slices.Equal(seen, want) {
		t.Errorf("saw %d events, want %d", len(seen), len(want))
	}
}

// TestBytes checks that queues and batches are also limited in bytes.
func TestBytes(t *testing.T) {
	st := newStore(Options{Queue: Limit{Bytes: 100}, Batch: Limit{Bytes: 35}})
	s := st.hub.NewStream()
	mustWatch(t, s, Request{Key: "k"})
	for range 50 {
		st.write(put("k")) // 10 bytes each
		st.hub.Distribute()
	}
	if n := len(s.watchers[0].queue); n != 10 {
		t.Errorf("queue of %d, want 10", n)
	}
	var lens []int
	for {
		b, ok := s.Poll()
		if !ok {
			break
		}
		if b.Kind == Changed {
			lens = append(lens, len(b.Events))
		}
	}
	// 10 events from the queue and 40 from history, at most 3 per batch
	want := slices.Concat([]int{3, 3, 3, 1}, slices.Repeat([]int{3}, 13), []int{1})
	if !slices.Equal(lens, want) {
		t.Errorf("batches of %v, want %v", lens, want)
	}
}

// TestShared checks that all watchers receive the same pointer to an event, and watchers of the
// same range the same slice. This lets an API encode each event once for all of them.
func TestShared(t *testing.T) {
	st := newStore(Options{})
	a, b := st.hub.NewStream(), st.hub.NewStream()
	for _, s := range []*Stream[*event]{a, b} {
		mustWatch(t, s, Request{Key: "k", End: "l"})
		s.Poll() // created
	}
	for range 4 {
		st.write(put("k"), put("x"))
		st.write(put("k1"))
	}
	st.hub.Distribute()
	x, _ := a.Poll()
	y, _ := b.Poll()
	if len(x.Events) != 8 || &x.Events[0] != &y.Events[0] {
		t.Errorf("got %v and %v, want 8 and shared", x.Events, y.Events)
	}
	// Later events are not appended in place to a shared slice.
	st.write(put("k"), put("x"), put("k"), put("x"), put("k"))
	st.hub.Distribute()
	if q, r := a.watchers[0].queue, b.watchers[0].queue; len(q) != 3 || cap(q) != 3 ||
		&q[0] != &r[0] {
		t.Errorf("then %v and %v, room for %d", q, r, cap(q))
	}
}

// TestSmallPart checks that a slow watcher of a few keys does not keep a large part of the backlog
// in memory.
func TestSmallPart(t *testing.T) {
	st := newStore(Options{})
	s := st.hub.NewStream()
	mustWatch(t, s, Request{Key: "k"})
	evs := make([]*event, 1000)
	for i := range evs {
		evs[i] = put("other")
	}
	evs[500] = put("k")
	st.write(evs...)
	st.hub.back.mu.Lock()
	base := &st.hub.back.events[500]
	st.hub.back.mu.Unlock()
	st.hub.Distribute()
	if q := s.watchers[0].queue; len(q) != 1 || &q[0] == base {
		t.Errorf("queue %v is a part of the backlog", q)
	}
}

// TestNoGapBetweenViewAndHub (W1) checks that no event is lost or repeated if a write occurs after
// the hub has loaded the current view and before it uses that view. It covers every place where the
// hub loads a view.
func TestNoGapBetweenViewAndHub(t *testing.T) {
	between := func(st *store) { st.shown = func() { st.write(put("k")) } }
	t.Run("watch", func(t *testing.T) {
		st := newStore(Options{})
		s := st.hub.NewStream()
		between(st)
		mustWatch(t, s, Request{Key: "k"})
		st.hub.Distribute()
		if evs, rev := drain(t, s); len(evs) != 1 || rev != 2 {
			t.Errorf("got %v up to %d", evs, rev)
		}
	})
	t.Run("resync", func(t *testing.T) {
		st := newStore(tight)
		s := st.hub.NewStream()
		mustWatch(t, s, Request{Key: "k"})
		for range 10 {
			st.write(put("k"))
			st.hub.Distribute()
		}
		for len(s.watchers[0].queue) > 0 {
			s.Poll()
		}
		from := s.watchers[0].lost
		between(st)
		evs, _ := drain(t, s)
		st.hub.Distribute()
		more, _ := drain(t, s)
		evs = append(evs, more...)
		v := st.cur.Load()
		if want := v.truth(Request{Key: "k"}, from, v.rev); from == 0 || !slices.Equal(evs, want) {
			t.Errorf("got %v, want %v", evs, want)
		}
	})
	t.Run("progress", func(t *testing.T) {
		st := newStore(Options{})
		s := st.hub.NewStream()
		st.shown = func() { st.hub.Publish(st.commit(), nil) }
		st.commit()
		s.RequestProgress(AllWatchers)
		select {
		case <-st.hub.kick:
			st.hub.Distribute()
		default:
		}
		if b, ok := s.Poll(); !ok || b.Revision != 3 {
			t.Errorf("said %+v, %v", b, ok)
		}
	})
}

// TestGoneWhileReading checks that a watcher ends only once if it is canceled, or its stream is
// closed, while its history is being read and turns out to be compacted.
func TestGoneWhileReading(t *testing.T) {
	for name, f := range map[string]func(*Stream[*event]){
		"cancel": func(s *Stream[*event]) { _ = s.Cancel(0) },
		"close":  (*Stream[*event]).Close,
	} {
		t.Run(name, func(t *testing.T) {
			st := newStore(Options{})
			s := st.hub.NewStream()
			mustWatch(t, s, Request{Key: "k", From: 1})
			s.Poll() // created
			v := &view{rev: 5, compacted: 4, reading: func() { f(s) }}
			st.cur.Store(v)
			b, ok := s.Poll()
			if ok != (name == "cancel") || ok && (b.Kind != Cancelled || b.Err != nil) {
				t.Errorf("said %+v, %v", b, ok)
			}
			if b, ok := s.Poll(); ok {
				t.Errorf("then said %+v", b)
			}
			if n := st.hub.interest.Load(); n != 0 {
				t.Errorf("interest %d", n)
			}
		})
	}
}

// TestRefused checks that each invalid request returns its own error and has no effect.
func TestRefused(t *testing.T) {
	st := newStore(Options{})
	s := st.hub.NewStream()
	mustWatch(t, s, Request{ID: 7, Key: "k"})
	for _, c := range []struct {
		r    Request
		want error
	}{
		{Request{Key: "b", End: "a"}, ErrEmptyRange},
		{Request{Key: "b", End: "b"}, ErrEmptyRange},
		{Request{Key: "b", From: -1}, ErrRevision},
		{Request{Key: "b", ID: 7}, ErrDuplicate},
		{Request{Key: "b", ID: AllWatchers}, ErrDuplicate},
	} {
		if id, err := s.Watch(c.r); err != c.want || id != AllWatchers {
			t.Errorf("%+v: %d, %v; want %v", c.r, id, err, c.want)
		}
	}
	if err := s.Cancel(8); err != ErrNotFound {
		t.Errorf("cancel: %v", err)
	}
	if n := st.hub.Stats(); n != (Stats{Streams: 1, Watchers: 1}) {
		t.Errorf("stats %+v", n)
	}
	s.Close()
	s.Close()
	if _, err := s.Watch(Request{Key: "k"}); err != errClosed {
		t.Errorf("watch after close: %v", err)
	}
	s.RequestProgress(AllWatchers)
	s.Reject(ErrRevision)
	if b, ok := s.Poll(); ok {
		t.Errorf("closed stream says %+v", b)
	}
	if n := st.hub.interest.Load(); n != 0 {
		t.Errorf("interest %d", n)
	}
}

// TestProgressFlood checks that a client that requests progress without reading has at most 64
// pending requests.
func TestProgressFlood(t *testing.T) {
	st := newStore(Options{})
	s := st.hub.NewStream()
	for range 1000 {
		s.RequestProgress(AllWatchers)
	}
	for round := range 2 {
		n := 0
		for {
			b, ok := s.Poll()
			if !ok {
				break
			}
			if b.Kind != Progress || b.Revision != 1 {
				t.Fatalf("got %+v", b)
			}
			n++
		}
		if want := []int{64, 1}[round]; n != want {
			t.Errorf("%d answers, want %d", n, want)
		}
		s.RequestProgress(AllWatchers)
	}
}

// TestBroken checks that the hub panics if a revision is published twice, if reading history does
// not advance, or if a watcher is missing from the index.
func TestBroken(t *testing.T) {
	st := newStore(Options{})
	st.write(put("k"))
	mustPanic(t, "watch: revision 2 was published after revision 2", func() {
		st.hub.Publish(2, nil)
	})
	w := &watcher[*event]{what: keyrange.Range{Key: "k"}}
	mustPanic(t, "watch: reading the history made no progress", func() {
		_, _, _ = w.read(stuck{st.cur.Load()}, 1, 2, tight.Batch)
	})
	mustPanic(t, "watch: watcher is not in the index", func() { st.hub.index.remove(w) })
}

type stuck struct{ *view }

func (stuck) Events(_, _ string, from int64, _ int) ([]*event, int64, error) {
	return nil, from, nil
}

func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		if got := recover(); got != want {
			t.Errorf("panic %v, want %q", got, want)
		}
	}()
	f()
}

// TestRun checks that Next waits for published events and serves history without delay. In etcd, a
// delay of 100 ms for history slows down contended locks. Closing the stream or stopping Run ends a
// waiting Next.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore(Options{})
		errStop := errors.New("stop")
		ctx, stop := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- st.hub.Run(ctx) }()
		s := st.hub.NewStream()
		start := time.Now()
		old := st.write(put("k"))
		mustWatch(t, s, Request{Key: "k", From: old})
		for _, want := range []Kind{Created, Changed} {
			if b, err := s.Next(ctx); err != nil || b.Kind != want || time.Since(start) != 0 {
				t.Fatalf("%+v, %v after %v", b, err, time.Since(start))
			}
		}
		time.AfterFunc(time.Second, func() { st.write(put("k")) })
		b, err := s.Next(ctx)
		if err != nil || b.Revision != old+1 || time.Since(start) != time.Second {
			t.Fatalf("%+v, %v after %v", b, err, time.Since(start))
		}
		s.RequestProgress(AllWatchers)
		if b, err := s.Next(ctx); err != nil || b.Kind != Progress || b.Revision != old+1 {
			t.Fatalf("%+v, %v", b, err)
		}
		time.AfterFunc(time.Second, s.Close)
		if _, err := s.Next(ctx); err != errClosed {
			t.Fatalf("after close: %v", err)
		}
		s = st.hub.NewStream()
		time.AfterFunc(time.Second, func() { stop(errStop) })
		if _, err := s.Next(ctx); err != errStop {
			t.Fatalf("after stop: %v", err)
		}
		if err := <-ended; err != errStop {
			t.Fatalf("run ended with %v", err)
		}
	})
}
