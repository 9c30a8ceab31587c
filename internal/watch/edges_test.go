package watch

import (
	"testing"
	"testing/synctest"

	"leasehold.dev/internal/keyrange"
)

// TestFIFOKeepsNothing checks that a queue does not reference popped elements, and does not
// allocate if only a few elements are pushed and popped at a time.
func TestFIFOKeepsNothing(t *testing.T) {
	var f fifo[*event]
	check := func() {
		t.Helper()
		kept := 0
		for _, e := range f.items[:cap(f.items)] {
			if e != nil {
				kept++
			}
		}
		if kept != f.len() {
			t.Fatalf("%d elements are kept, want %d", kept, f.len())
		}
	}
	for range 8 {
		f.push(put("k"))
	}
	for range 5 {
		f.pop()
	}
	for range 20 { // repeatedly moves the remaining elements to the front
		f.push(put("k"))
		check()
		f.pop()
		check()
	}
	for _, many := range []int{1, 64} {
		f, e := fifo[*event]{}, put("k")
		n := testing.AllocsPerRun(100, func() {
			for range many {
				f.push(e)
			}
			for range many {
				f.pop()
			}
		})
		if n != 0 {
			t.Errorf("%d that come and go allocate %v times", many, n)
		}
	}
}

// TestHubKeepsNothing checks that the index and scratch memory do not reference a range after its
// last watcher has ended, or a progress request after it has been answered.
func TestHubKeepsNothing(t *testing.T) {
	st := newStore(Options{})
	s := st.hub.NewStream()
	ranges := []Request{{Key: "k"}, {Key: "k", End: "m"}}
	for _, r := range ranges {
		mustWatch(t, s, r)
		mustWatch(t, s, r)
		r.NoPut = true
		mustWatch(t, s, r)
	}
	rev := st.commit(put("k"))
	s.RequestProgress(AllWatchers)
	s.RequestProgress(AllWatchers)
	st.hub.Publish(rev, st.cur.Load().events)
	st.hub.Distribute()
	for _, w := range st.hub.waits[:cap(st.hub.waits)] {
		if w.stream != nil {
			t.Error("an answered request for progress is kept")
		}
	}
	for _, g := range st.hub.touched[:cap(st.hub.touched)] {
		if g != nil {
			t.Error("a group of the last distribution is kept")
		}
	}
	for _, r := range ranges {
		place, _ := st.hub.index.find(keyrange.Range{Key: r.Key, End: r.End})
		for range 2 {
			id := mustWatch(t, s, r)
			if err := s.Cancel(id); err != nil {
				t.Fatal(err)
			}
		}
		for _, g := range place.groups {
			if g == nil {
				continue
			}
			for _, w := range g.watchers[len(g.watchers):cap(g.watchers)] {
				if w != nil {
					t.Error("a watcher that was cancelled is kept")
				}
			}
		}
	}
	// the watchers of the single key, starting with the two without a filter
	for id := range int64(3) {
		place, _ := st.hub.index.find(s.watchers[id].what)
		if err := s.Cancel(id); err != nil {
			t.Fatal(err)
		}
		if id == 1 && place.groups[0] != nil {
			t.Error("a group without watchers is kept")
		}
	}
	if n := len(st.hub.index.points); n != 0 {
		t.Errorf("the index has %d keys that nobody watches", n)
	}
	s.Close()
	for range st.hub.index.ranges.All() {
		t.Error("the index has a range that nobody watches")
	}
}

// TestClosedKeepsNothing checks that closing a stream a second time has no effect. A closed stream
// drops its queue and accepts nothing more, and none of its progress requests remain pending.
func TestClosedKeepsNothing(t *testing.T) {
	st := newStore(Options{})
	other := st.hub.NewStream()
	s := st.hub.NewStream()
	mustWatch(t, s, Request{Key: "k"})
	s.Close()
	s.Close()
	s.Reject(ErrRevision)
	if n := s.agenda.len(); n != 0 {
		t.Errorf("%d things to say are kept", n)
	}
	st.commit() // visible but not yet published, so a progress request would have to wait
	s.RequestProgress(AllWatchers)
	if n := len(st.hub.waits); n != 0 {
		t.Errorf("%d requests for progress wait", n)
	}
	if n := st.hub.Stats(); n != (Stats{Streams: 1}) {
		t.Errorf("stats %+v with one stream open", n)
	}
	other.Close()
}

// TestTap checks that the tap receives all events while it is wanted. It is notified of gaps, which
// occur after a restore and when the backlog overflows. A single publication larger than the
// backlog does not cause a gap.
func TestTap(t *testing.T) {
	st := newStore(Options{Backlog: Limit{Events: 3, Bytes: 30}})
	var events, revision, gaps int
	st.hub.Tap(func(evs []*event, rev int64, gap bool) {
		events, revision = events+len(evs), int(rev)
		if gap {
			gaps++
		}
	})
	want := func(when string, e, r, g int) {
		t.Helper()
		st.hub.Distribute()
		if events != e || revision != r || gaps != g {
			t.Errorf("%s: %d events up to %d, %d gaps; want %d, %d, %d",
				when, events, revision, gaps, e, r, g)
		}
		events, gaps = 0, 0
	}
	st.write(put("k"))
	want("nobody wants it", 0, 2, 0)
	st.hub.Want(1)
	st.write(put("k"), put("x"))
	st.write(put("y"))
	want("three events of ten bytes", 3, 4, 0)
	st.write(put("k"), put("x"), put("y"), put("z"))
	st.hub.Publish(st.commit(), nil)
	want("four at once, and a revision without events", 4, 6, 0)
	for range 4 {
		st.write(put("k"))
	}
	want("four after another", 3, 10, 1)
	st.write(&event{key: "k", size: 30})
	want("thirty bytes", 1, 11, 0)
	st.write(put("k"))
	st.write(&event{key: "k", size: 21})
	want("thirty-one bytes", 1, 13, 1)
	st.commit()
	st.hub.Restore(st.commit())
	want("a restore", 0, 15, 1)
	mustPanic(t, "watch: revision 15 was published after revision 15", func() {
		st.hub.Publish(15, nil)
	})
	later := func(n int) {
		evs := []*event{put("a"), put("b"), put("c"), put("d")}[:n]
		st.hub.PublishLater(st.commit(evs...), n, func() []*event { return evs })
	}
	st.write(put("k"))
	later(1)
	st.write(put("k"))
	want("one of them later", 3, 18, 0)
	later(4)
	want("four at once, later", 4, 19, 0)
	later(2)
	later(2)
	want("one too many later", 2, 21, 1)
	st.hub.Want(-1)
	st.write(put("k"))
	later(1)
	want("nobody wants it any more", 0, 23, 0)
}

// TestLaterWakes checks that PublishLater wakes the watchers promptly.
func TestLaterWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore(Options{})
		go func() { _ = st.hub.Run(t.Context()) }()
		s := st.hub.NewStream()
		mustWatch(t, s, Request{Key: "k"})
		for range 100 {
			e := put("k")
			st.hub.PublishLater(st.commit(e), 1, func() []*event { return []*event{e} })
			synctest.Wait()
			if rev := st.hub.Live(); rev != e.rev {
				t.Fatalf("live is %d after %d", rev, e.rev)
			}
		}
	})
}

// TestRestoreWakes checks that after a restore, watchers read the events they missed, even if
// nothing else is published.
func TestRestoreWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore(Options{})
		go func() { _ = st.hub.Run(t.Context()) }()
		s := st.hub.NewStream()
		mustWatch(t, s, Request{Key: "k"})
		rev := st.commit(put("k"))
		st.hub.Restore(rev)
		synctest.Wait()
		if evs, at := drain(t, s); len(evs) != 1 || at != rev {
			t.Errorf("%d events up to %d, want 1 up to %d", len(evs), at, rev)
		}
	})
}

// TestProgressWithoutWatchers checks that a progress request distributes revisions that were
// published while there were no watchers.
func TestProgressWithoutWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore(Options{})
		go func() { _ = st.hub.Run(t.Context()) }()
		rev := st.write(put("k"))
		s := st.hub.NewStream()
		s.RequestProgress(AllWatchers)
		synctest.Wait()
		if b, ok := s.Poll(); !ok || b.Kind != Progress || b.Revision != rev {
			t.Errorf("said %+v, %v; want progress up to %d", b, ok, rev)
		}
	})
}

// TestProgressOfEndedWatcher checks that a progress request for a watcher that has ended no longer
// counts as pending.
func TestProgressOfEndedWatcher(t *testing.T) {
	s := newStore(Options{}).hub.NewStream()
	for range 2 * maxPending {
		id := mustWatch(t, s, Request{Key: "k"})
		s.RequestProgress(id)
		if err := s.Cancel(id); err != nil {
			t.Fatal(err)
		}
		drain(t, s)
	}
	s.RequestProgress(AllWatchers)
	if b, ok := s.Poll(); !ok || b.Kind != Progress {
		t.Errorf("said %+v, %v; want progress", b, ok)
	}
}

// TestLargePart checks that a watcher that receives a large part of a distribution shares its
// memory instead of copying it.
func TestLargePart(t *testing.T) {
	st := newStore(Options{})
	s := st.hub.NewStream()
	mustWatch(t, s, Request{Key: "k"})
	st.write(put("x"), put("x"), put("k"), put("k"), put("x"), put("x"), put("x"), put("x"))
	st.hub.back.mu.Lock()
	part := &st.hub.back.events[2]
	st.hub.back.mu.Unlock()
	st.hub.Distribute()
	if q := s.watchers[0].queue; len(q) != 2 || &q[0] != part {
		t.Errorf("queue %v is a copy", q)
	}
}
