package turn

import (
	"sync"
	"sync/atomic"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestTurns: who is next is told when the one before goes, by whose going, and of his own
// end, why. Who gives up in the middle wakes nobody.
func TestTurns(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2, 3, 4)
	for id := lease.ID(1); id <= 4; id++ {
		m.put(t, place(id), id, "")
	}
	m.put(t, "l/sub/5", 1, "") // in no line of these
	m.put(t, "l/77", 0, "")    // on no lease
	first, one := m.wait(t, 1, Come)
	second, two := m.wait(t, 2, Waiting)
	third, three := m.wait(t, 3, Waiting)
	fourth, four := m.wait(t, 4, Waiting)
	m.remove(t, place(3))
	m.hub.Distribute()
	two.want(t)
	four.want(t)
	if n := three.want(t, Gone)[0]; n.Why != fsm.Deleted || n.Lease != 0 {
		t.Errorf("told %+v", n)
	}
	at := m.apply(t, &fsm.Revoke{ID: 1})
	m.hub.Distribute()
	if n := one.want(t, Gone)[0]; n.Why != fsm.Revoked || n.Lease != 1 || n.Revision != at {
		t.Errorf("told %+v", n)
	}
	if n := two.want(t, Come)[0]; n.After != place(1) || n.Revision != at || n.Created == 0 {
		t.Errorf("told %+v", n)
	}
	four.want(t)
	// Both in one revision: it is never the turn of a key that is gone.
	_, late := m.wait(t, 4, Waiting)
	m.apply(t, &fsm.DeleteRange{Key: "l/2", End: "l/5"})
	m.hub.Distribute()
	two.want(t, Gone)
	four.want(t, Gone)
	late.want(t, Gone)
	first.Leave()
	second.Leave()
	third.Leave()
	if s := m.lines.Stats(); s != (Stats{Lines: 1, Waiting: 2}) {
		t.Errorf("stats %+v", s)
	}
	fourth.Leave()
}

// TestAsOf: what is asked is of the key as it was at a revision, whatever came since.
func TestAsOf(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2)
	before := m.view.Load().KV.Revision()
	made := m.put(t, place(1), 1, "")
	gone := m.apply(t, &fsm.Revoke{ID: 1})
	m.grant(t, 1)
	ask := func(asOf int64, want State) News {
		t.Helper()
		p, n := m.lines.Wait(Ask{Key: place(1), Prefix: "l/", Permits: 1}, asOf, &told{})
		if n.State != want {
			t.Errorf("as of %d: %+v, want state %d", asOf, n, want)
		}
		if p != nil {
			p.Leave()
		}
		return n
	}
	ask(before, None)
	if n := ask(made, Gone); n.Why != fsm.Revoked || n.Lease != 1 || n.Revision != gone ||
		n.Created != made {
		t.Errorf("told %+v", n)
	}
	again := m.put(t, place(1), 1, "")
	ask(made, Gone)
	if n := ask(again, Come); n.Created != again {
		t.Errorf("told %+v", n)
	}
	m.apply(t, &fsm.Compact{Revision: again})
	ask(made, Gone)
	m.put(t, place(1), 0, "") // it is on no lease any more
	ask(m.view.Load().KV.Revision(), None)
	if s := m.lines.Stats(); s != (Stats{}) {
		t.Errorf("left behind: %+v", s)
	}
}

// TestBehindTheHub: whoever asks for a key that the hub has not told of yet is not told that
// it is his turn because those before him are not known.
func TestBehindTheHub(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2, 3)
	m.put(t, place(1), 1, "")
	p, _ := m.wait(t, 1, Come)
	m.remove(t, place(1))
	m.put(t, place(2), 2, "")
	m.put(t, place(3), 3, "")
	_, three := m.wait(t, 3, Waiting)
	m.remove(t, place(2))
	m.hub.Distribute()
	three.want(t, Come)
	p.Leave()
}

// TestDetached: a key that is taken off its lease waits for nobody, and nobody for it; put on
// one again it has its old place.
func TestDetached(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2)
	m.put(t, place(1), 1, "")
	m.put(t, place(2), 2, "")
	_, one := m.wait(t, 1, Come)
	_, two := m.wait(t, 2, Waiting)
	m.put(t, place(1), 0, "")
	m.hub.Distribute()
	one.want(t, Gone)
	two.want(t, Come)
	m.put(t, place(1), 1, "")
	m.hub.Distribute()
	m.wait(t, 1, Come)
	m.wait(t, 2, Waiting)
}

// threeInLine returns a member with three in one line, of whom the first has the turn.
func threeInLine(t *testing.T) (m *member, one, two, three *told) {
	t.Helper()
	m = newMember(4)
	m.grant(t, 1, 2, 3)
	for id := lease.ID(1); id <= 3; id++ {
		m.put(t, place(id), id, "")
	}
	_, one = m.wait(t, 1, Come)
	_, two = m.wait(t, 2, Waiting)
	_, three = m.wait(t, 3, Waiting)
	return m, one, two, three
}

// TestMissed: when there were too many events, or a snapshot took the place of the state,
// the lines are read anew, and nobody is forgotten.
func TestMissed(t *testing.T) {
	for _, how := range []string{"backlog", "snapshot"} {
		t.Run(how, func(t *testing.T) {
			m, one, two, three := threeInLine(t)
			many := 0
			if how == "backlog" {
				many = 10
			}
			for range many {
				m.put(t, "other", 0, "")
			}
			m.remove(t, place(2))
			m.apply(t, &fsm.Revoke{ID: 1})
			if how == "snapshot" {
				m.hub.Restore(m.view.Load().KV.Revision() + 1)
			}
			m.hub.Distribute()
			if n := one.want(t, Gone)[0]; n.Why != fsm.Revoked || n.Lease != 1 {
				t.Errorf("told %+v", n)
			}
			two.want(t, Gone)
			if n := three.want(t, Come)[0]; n.After != "" {
				t.Errorf("told %+v", n)
			}
		})
	}
}

// TestMissedAndCompacted: what took a key is known after a gap, also if what the line was once
// read from is compacted.
func TestMissedAndCompacted(t *testing.T) {
	m := newMember(4)
	m.grant(t, 1)
	m.put(t, place(1), 1, "")
	p, one := m.wait(t, 1, Come)
	m.put(t, "other", 0, "")
	at := m.put(t, "other", 0, "")
	m.hub.Distribute()
	m.apply(t, &fsm.Compact{Revision: at})
	m.apply(t, &fsm.Revoke{ID: 1})
	for range 10 {
		m.put(t, "other", 0, "")
	}
	m.hub.Restore(m.view.Load().KV.Revision() + 1)
	m.hub.Distribute()
	if n := one.want(t, Gone)[0]; n.Why != fsm.Revoked || n.Lease != 1 {
		t.Errorf("told %+v", n)
	}
	p.Leave()
}

// TestCompactedBetween: what took a key after what is compacted is known, though the line was
// followed only up to before; what may have taken it before is said not to be known, and so it is
// of a key that was there once.
func TestCompactedBetween(t *testing.T) {
	m, one, two, three := threeInLine(t)
	made := m.view.Load().KV.Revision()
	m.apply(t, &fsm.Revoke{ID: 1})
	m.apply(t, &fsm.Revoke{ID: 3})
	m.grant(t, 3)
	m.put(t, place(3), 3, "")
	at := m.put(t, "other", 0, "")
	m.apply(t, &fsm.Compact{Revision: at})
	gone := m.apply(t, &fsm.Revoke{ID: 2})
	m.apply(t, &fsm.Revoke{ID: 3})
	for range 10 {
		m.put(t, "other", 0, "")
	}
	m.hub.Restore(m.view.Load().KV.Revision() + 1)
	m.hub.Distribute()
	if n := two.want(t, Gone)[0]; n.Why != fsm.Revoked || n.Lease != 2 || n.Unknown ||
		n.Revision != gone {
		t.Errorf("told %+v", n)
	}
	for _, w := range []*told{one, three} {
		if n := w.want(t, Gone)[0]; !n.Unknown || n.Why != fsm.Deleted || n.Lease != 0 {
			t.Errorf("told %+v", n)
		}
	}
	_, n := m.lines.Wait(Ask{Key: place(1), Prefix: "l/", Permits: 1}, made, &told{})
	if n.State != Gone || !n.Unknown {
		t.Errorf("told %+v", n)
	}
}

// TestReadOutside: a line with many keys is read while others may wait in lines, and what happens
// meanwhile is not missed: also if events are missing, or compacted.
func TestReadOutside(t *testing.T) {
	for _, how := range []string{"events", "gap", "compacted"} {
		t.Run(how, func(t *testing.T) {
			m := newMember(1 << 16)
			const n = fewKeys + 10
			for id := lease.ID(1); id <= n; id++ {
				m.grant(t, id)
				m.put(t, place(id), id, "")
			}
			made := m.view.Load().KV.Revision()
			reads := 0
			m.lines.between = func() {
				if reads++; reads > 1 {
					return
				}
				if s := m.lines.Stats(); s.Lines != 0 {
					t.Errorf("stats %+v", s)
				}
				m.apply(t, &fsm.Revoke{ID: 1})
				m.grant(t, n+1)
				at := m.put(t, place(n+1), n+1, "")
				if how == "compacted" {
					m.apply(t, &fsm.Compact{Revision: at})
				}
				if how == "gap" {
					m.hub.Restore(at)
				}
				m.hub.Distribute()
			}
			two, three := &told{}, &told{}
			p, news := m.lines.Wait(Ask{Key: place(2), Prefix: "l/", Permits: 1}, made, two)
			if news.State != Come || reads != 1 {
				t.Fatalf("%+v after %d reads", news, reads)
			}
			q, news := m.lines.Wait(Ask{Key: place(3), Prefix: "l/", Permits: 1}, made, three)
			if news.State != Waiting || reads != 1 {
				t.Fatalf("%+v after %d reads", news, reads)
			}
			if len(p.queue.keys) != n {
				t.Errorf("%d keys in the line", len(p.queue.keys))
			}
			gone := m.apply(t, &fsm.Revoke{ID: 2})
			m.hub.Distribute()
			two.want(t, Gone)
			if told := three.want(t, Come)[0]; told.After != place(2) || told.Revision != gone {
				t.Errorf("told %+v", told)
			}
			p.Leave()
			q.Leave()
		})
	}
}

// TestEnterTogether: those who enter a line with many keys at once wait for one to read it.
func TestEnterTogether(t *testing.T) {
	m := newMember(1 << 16)
	const n = fewKeys + 10
	for id := lease.ID(1); id <= n; id++ {
		m.grant(t, id)
		m.put(t, place(id), id, "")
	}
	made := m.view.Load().KV.Revision()
	var reads atomic.Int32
	m.lines.between = func() { reads.Add(1) }
	var all sync.WaitGroup
	for id := lease.ID(1); id <= n; id++ {
		all.Go(func() {
			_, news := m.lines.Wait(Ask{Key: place(id), Prefix: "l/", Permits: 1}, made, &told{})
			if want := map[bool]State{true: Come, false: Waiting}[id == 1]; news.State != want {
				t.Errorf("place %d: %+v", id, news)
			}
		})
	}
	all.Wait()
	if s := m.lines.Stats(); s != (Stats{Lines: 1, Waiting: n}) || reads.Load() != 1 {
		t.Errorf("%+v after %d reads", s, reads.Load())
	}
}

// TestKinds: places with a value that is skipped do not count, also if it changes.
func TestKinds(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2, 3, 4)
	for i, value := range []string{"r", "w", "r", "r"} {
		id := lease.ID(i + 1)
		m.put(t, place(id), id, value)
	}
	read := func(id lease.ID, want State) *told {
		t.Helper()
		w := &told{}
		_, n := m.lines.Wait(Ask{
			Key: place(id), Prefix: "l/", Permits: 1, Skips: true, Beside: "r",
		}, m.view.Load().KV.Revision(), w)
		if n.State != want {
			t.Fatalf("reader %d: %+v", id, n)
		}
		return w
	}
	read(1, Come)
	_, two := m.wait(t, 2, Waiting)
	three, four := read(3, Waiting), read(4, Waiting)
	m.put(t, place(2), 2, "r")
	m.hub.Distribute()
	two.want(t)
	three.want(t, Come)
	four.want(t, Come)
	m.remove(t, place(1))
	m.hub.Distribute()
	two.want(t, Come)
}
