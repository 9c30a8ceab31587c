package watch

import (
	"errors"
	"strings"
	"testing"
)

// bounded returns a hub with enough memory for the given number of watches with short keys.
func bounded(watches int64) *Hub[*event] {
	return newStore(Options{Watches: watches * (watchCost + 1)}).hub
}

// watches opens watches on a key until one is rejected or n are open. It returns the number opened.
func watches(t *testing.T, s *Stream[*event], n int, key string) (added int) {
	t.Helper()
	for added < n {
		if _, err := s.Watch(Request{ID: s.nextID + 1, Key: key}); err != nil {
			if !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
			break
		}
		s.nextID++
		added++
	}
	return added
}

// TestWatchesAreBounded checks that the memory used by watches is bounded, and that long keys count
// for more than short ones. A stream can use no more memory than it leaves free for others.
func TestWatchesAreBounded(t *testing.T) {
	h := bounded(12)
	first, second := h.NewStream(), h.NewStream()
	if n := watches(t, first, 100, "k"); n != 6 {
		t.Errorf("the first stream has %d watches", n)
	}
	if n := watches(t, second, 100, strings.Repeat("k", 2*watchCost)); n != 1 {
		t.Errorf("the second stream has %d watches with long keys", n)
	}
	second.Close()
	if n := watches(t, h.NewStream(), 100, "k"); n != 3 {
		t.Errorf("a stream has %d watches after another has ended", n)
	}
	first.Close()
	if n := watches(t, h.NewStream(), 100, "k"); n != 5 {
		t.Errorf("a stream has %d watches after another has ended", n)
	}
}

// TestUnreadEndsCount checks that a watch that was canceled, or whose history was compacted, counts
// against the bound until the client has received the notice.
func TestUnreadEndsCount(t *testing.T) {
	st := newStore(Options{Watches: 12 * (watchCost + 1)})
	s := st.hub.NewStream()
	watches(t, s, 6, "k")
	for id := range int64(6) {
		if err := s.Cancel(id + 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := watches(t, s, 1, "k"); n != 0 {
		t.Error("a watch is added though nothing was read")
	}
	for _, ok := s.Poll(); ok; _, ok = s.Poll() {
	}
	if n := watches(t, s, 100, "k"); n != 6 {
		t.Errorf("%d watches after all was read", n)
	}
	for id := range s.watchers {
		_ = s.Cancel(id)
	}
	for _, ok := s.Poll(); ok; _, ok = s.Poll() {
	}
	st.commit(put("k"))
	st.compact(1)
	if _, err := s.Watch(Request{ID: 100, Key: "k", From: 1}); err != nil {
		t.Fatal(err)
	}
	for _, ok := s.Poll(); ok; _, ok = s.Poll() {
	}
	if n := st.hub.taken.Load(); n != 0 || s.taken != 0 {
		t.Errorf("%d bytes, %d of the stream, are counted after all watches ended", n, s.taken)
	}
}

// TestUnreadRefusalsAreBounded checks that a client that does not read can cause only a bounded
// number of pending rejections.
func TestUnreadRefusalsAreBounded(t *testing.T) {
	s := bounded(1).NewStream()
	n := 0
	for ; n < 10*maxRejected; n++ {
		if err := s.Reject(ErrRevision); err != nil {
			break
		}
	}
	if n != maxRejected {
		t.Errorf("%d refusals wait", n)
	}
	if _, ok := s.Poll(); !ok || s.Reject(ErrRevision) != nil {
		t.Error("no refusal after one was read")
	}
}

// TestQueuesAreBounded checks that the total size of all queues is bounded. Watchers that fall
// behind read history later, and the others receive live events.
func TestQueuesAreBounded(t *testing.T) {
	st := newStore(Options{Queues: 1000})
	unread, read := st.hub.NewStream(), st.hub.NewStream()
	key := func(i int) string { return string(rune('A' + i)) }
	const behind = 20
	for i := range behind {
		mustWatch(t, unread, Request{Key: key(i)})
	}
	mustWatch(t, read, Request{Key: "z"})
	events := func(s *Stream[*event]) (n int) {
		for b, ok := s.Poll(); ok; b, ok = s.Poll() {
			n += len(b.Events)
		}
		return n
	}
	events(read)
	const writes = 50
	for range writes {
		for i := range behind {
			st.write(put(key(i))) // 10 bytes each
		}
		st.write(put("z"))
		st.hub.Distribute()
		if n := len(read.watchers[0].queue); n != 1 {
			t.Fatalf("%d live events for a client that reads", n)
		}
		if n := events(read); n != 1 {
			t.Fatalf("a client that reads got %d events", n)
		}
	}
	if n := st.hub.queued.Load(); n < 500 || n > 1000 {
		t.Errorf("%d bytes wait", n)
	}
	if n := events(unread); n != behind*writes || st.hub.queued.Load() != 0 {
		t.Errorf("%d events were late, and %d bytes wait", n, st.hub.queued.Load())
	}
}

// TestFailedWatchNotCounted checks that events arriving while a watch is failing are not counted,
// because no caller would dequeue them.
func TestFailedWatchNotCounted(t *testing.T) {
	st := newStore(Options{})
	s := st.hub.NewStream()
	mustWatch(t, s, Request{Key: "k"})
	s.mu.Lock()
	w := s.watchers[0]
	s.dropLocked(w) // as failLocked does before it acquires the hub's lock
	s.mu.Unlock()
	st.write(put("k"))
	st.hub.Distribute()
	if n := st.hub.queued.Load(); n != 0 || len(w.queue) != 0 {
		t.Errorf("%d bytes are counted, and %d events wait", n, len(w.queue))
	}
}
