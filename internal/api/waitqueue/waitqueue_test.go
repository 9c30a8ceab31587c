package waitqueue

import (
	"sync"
	"sync/atomic"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestTurns checks the notifications of a waiter. When the ticket before its own ends, it is
// notified with that ticket's key. When its own ticket ends, it is notified with the cause. When a
// waiter in the middle leaves, no other waiter is woken.
func TestTurns(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2, 3, 4)
	for id := lease.ID(1); id <= 4; id++ {
		m.put(t, keyOf(id), id, "")
	}
	m.put(t, "l/sub/5", 1, "") // not in this queue
	m.put(t, "l/77", 0, "")    // without a lease
	first, one := m.wait(t, 1, Ready)
	second, two := m.wait(t, 2, Waiting)
	third, three := m.wait(t, 3, Waiting)
	fourth, four := m.wait(t, 4, Waiting)
	m.remove(t, keyOf(3))
	m.hub.Distribute()
	two.want(t)
	four.want(t)
	if n := three.want(t, Gone)[0]; n.Why != fsm.Deleted || n.Lease != 0 {
		t.Errorf("got %+v", n)
	}
	at := m.apply(t, &fsm.Revoke{ID: 1})
	m.hub.Distribute()
	if n := one.want(t, Gone)[0]; n.Why != fsm.Revoked || n.Lease != 1 || n.Revision != at {
		t.Errorf("got %+v", n)
	}
	if n := two.want(t, Ready)[0]; n.After != keyOf(1) || n.Revision != at || n.Created == 0 {
		t.Errorf("got %+v", n)
	}
	four.want(t)
	// If both tickets end in one revision, a deleted key never becomes ready.
	_, late := m.wait(t, 4, Waiting)
	m.apply(t, &fsm.DeleteRange{Key: "l/2", End: "l/5"})
	m.hub.Distribute()
	two.want(t, Gone)
	four.want(t, Gone)
	late.want(t, Gone)
	first.Leave()
	second.Leave()
	third.Leave()
	if s := m.queues.Stats(); s != (Stats{Queues: 1, Waiting: 2}) {
		t.Errorf("stats %+v", s)
	}
	fourth.Leave()
}

// TestAsOf checks that Wait refers to the key as it was at the given revision, regardless of later
// changes.
func TestAsOf(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2)
	before := m.view.Load().KV.Revision()
	made := m.put(t, keyOf(1), 1, "")
	gone := m.apply(t, &fsm.Revoke{ID: 1})
	m.grant(t, 1)
	ask := func(asOf int64, want State) News {
		t.Helper()
		e, n := m.queues.Wait(Ask{Key: keyOf(1), Prefix: "l/", Permits: 1}, asOf, &recorder{})
		if n.State != want {
			t.Errorf("as of %d: %+v, want state %d", asOf, n, want)
		}
		if e != nil {
			e.Leave()
		}
		return n
	}
	ask(before, None)
	if n := ask(made, Gone); n.Why != fsm.Revoked || n.Lease != 1 || n.Revision != gone ||
		n.Created != made {
		t.Errorf("got %+v", n)
	}
	again := m.put(t, keyOf(1), 1, "")
	ask(made, Gone)
	if n := ask(again, Ready); n.Created != again {
		t.Errorf("got %+v", n)
	}
	m.apply(t, &fsm.Compact{Revision: again})
	ask(made, Gone)
	m.put(t, keyOf(1), 0, "") // no longer attached to a lease
	ask(m.view.Load().KV.Revision(), None)
	if s := m.queues.Stats(); s != (Stats{}) {
		t.Errorf("left behind: %+v", s)
	}
}

// TestUndistributedKeyNotReady checks that a waiter whose key has not been distributed yet does not
// become ready merely because the keys before it are unknown.
func TestUndistributedKeyNotReady(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2, 3)
	m.put(t, keyOf(1), 1, "")
	e, _ := m.wait(t, 1, Ready)
	m.remove(t, keyOf(1))
	m.put(t, keyOf(2), 2, "")
	m.put(t, keyOf(3), 3, "")
	_, three := m.wait(t, 3, Waiting)
	m.remove(t, keyOf(2))
	m.hub.Distribute()
	three.want(t, Ready)
	e.Leave()
}

// threeInQueue returns a member with three waiters in a queue, of which the first is ready.
func threeInQueue(t *testing.T) (m *member, one, two, three *recorder) {
	t.Helper()
	m = newMember(4)
	m.grant(t, 1, 2, 3)
	for id := lease.ID(1); id <= 3; id++ {
		m.put(t, keyOf(id), id, "")
	}
	_, one = m.wait(t, 1, Ready)
	_, two = m.wait(t, 2, Waiting)
	_, three = m.wait(t, 3, Waiting)
	return m, one, two, three
}

// TestCompactedBetween checks that the cause of a key's end after a compaction is known, even if
// the queue was last followed before the compaction. The cause of an end before the compaction is
// reported as unknown.
func TestCompactedBetween(t *testing.T) {
	m, one, two, three := threeInQueue(t)
	made := m.view.Load().KV.Revision()
	m.apply(t, &fsm.Revoke{ID: 1})
	m.apply(t, &fsm.Revoke{ID: 3})
	m.grant(t, 3)
	m.put(t, keyOf(3), 3, "")
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
		t.Errorf("got %+v", n)
	}
	for _, w := range []*recorder{one, three} {
		if n := w.want(t, Gone)[0]; !n.Unknown || n.Why != fsm.Deleted || n.Lease != 0 {
			t.Errorf("got %+v", n)
		}
	}
	_, n := m.queues.Wait(Ask{Key: keyOf(1), Prefix: "l/", Permits: 1}, made, &recorder{})
	if n.State != Gone || !n.Unknown {
		t.Errorf("got %+v", n)
	}
}

// TestReadUnlocked checks that reading a long queue does not block others, and that no change
// during the read is missed, even if events are missing or compacted.
func TestReadUnlocked(t *testing.T) {
	for _, how := range []string{"events", "gap", "compacted"} {
		t.Run(how, func(t *testing.T) {
			m := newMember(1 << 16)
			const n = fewKeys + 10
			for id := lease.ID(1); id <= n; id++ {
				m.grant(t, id)
				m.put(t, keyOf(id), id, "")
			}
			made := m.view.Load().KV.Revision()
			reads := 0
			m.queues.afterRead = func() {
				if reads++; reads > 1 {
					return
				}
				if s := m.queues.Stats(); s.Queues != 0 {
					t.Errorf("stats %+v", s)
				}
				m.apply(t, &fsm.Revoke{ID: 1})
				m.grant(t, n+1)
				at := m.put(t, keyOf(n+1), n+1, "")
				if how == "compacted" {
					m.apply(t, &fsm.Compact{Revision: at})
				}
				if how == "gap" {
					m.hub.Restore(at)
				}
				m.hub.Distribute()
			}
			two, three := &recorder{}, &recorder{}
			e, news := m.queues.Wait(Ask{Key: keyOf(2), Prefix: "l/", Permits: 1}, made, two)
			if news.State != Ready || reads != 1 {
				t.Fatalf("%+v after %d reads", news, reads)
			}
			q, news := m.queues.Wait(Ask{Key: keyOf(3), Prefix: "l/", Permits: 1}, made, three)
			if news.State != Waiting || reads != 1 {
				t.Fatalf("%+v after %d reads", news, reads)
			}
			if len(e.queue.keys) != n {
				t.Errorf("%d keys in the queue, want %d", len(e.queue.keys), n)
			}
			gone := m.apply(t, &fsm.Revoke{ID: 2})
			m.hub.Distribute()
			two.want(t, Gone)
			if got := three.want(t, Ready)[0]; got.After != keyOf(2) || got.Revision != gone {
				t.Errorf("got %+v", got)
			}
			e.Leave()
			q.Leave()
		})
	}
}

// TestConcurrentEnter checks that if several waiters enter a long queue at the same time, one of
// them reads it and the others wait for it to finish.
func TestConcurrentEnter(t *testing.T) {
	m := newMember(1 << 16)
	const n = fewKeys + 10
	for id := lease.ID(1); id <= n; id++ {
		m.grant(t, id)
		m.put(t, keyOf(id), id, "")
	}
	made := m.view.Load().KV.Revision()
	var reads atomic.Int32
	m.queues.afterRead = func() { reads.Add(1) }
	var all sync.WaitGroup
	for id := lease.ID(1); id <= n; id++ {
		all.Go(func() {
			_, news := m.queues.Wait(Ask{Key: keyOf(id), Prefix: "l/", Permits: 1}, made, &recorder{})
			if want := map[bool]State{true: Ready, false: Waiting}[id == 1]; news.State != want {
				t.Errorf("ticket %d: %+v", id, news)
			}
		})
	}
	all.Wait()
	if s := m.queues.Stats(); s != (Stats{Queues: 1, Waiting: n}) || reads.Load() != 1 {
		t.Errorf("%+v after %d reads", s, reads.Load())
	}
}

// TestKinds checks that tickets with the skipped value do not count, even if a value is changed to
// it.
func TestKinds(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2, 3, 4)
	for i, value := range []string{"r", "w", "r", "r"} {
		id := lease.ID(i + 1)
		m.put(t, keyOf(id), id, value)
	}
	read := func(id lease.ID, want State) *recorder {
		t.Helper()
		w := &recorder{}
		_, n := m.queues.Wait(Ask{
			Key: keyOf(id), Prefix: "l/", Permits: 1, Skips: true, IgnoredValue: "r",
		}, m.view.Load().KV.Revision(), w)
		if n.State != want {
			t.Fatalf("reader %d: %+v", id, n)
		}
		return w
	}
	read(1, Ready)
	_, two := m.wait(t, 2, Waiting)
	three, four := read(3, Waiting), read(4, Waiting)
	m.put(t, keyOf(2), 2, "r")
	m.hub.Distribute()
	two.want(t)
	three.want(t, Ready)
	four.want(t, Ready)
	m.remove(t, keyOf(1))
	m.hub.Distribute()
	two.want(t, Ready)
}
