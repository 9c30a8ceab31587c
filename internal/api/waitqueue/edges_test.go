package waitqueue

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// ask waits for a lease's ticket with one permit, as of a revision.
func (m *member) ask(id lease.ID, asOf int64, w Waiter) (*Entry, News) {
	return m.queues.Wait(Ask{Key: keyOf(id), Prefix: "l/", Permits: 1}, asOf, w)
}

// TestNotifiedAfter checks that the notification of a turn contains the key that ended just before
// and the revision of that end, not a later revision. The key is empty if none ended.
func TestNotifiedAfter(t *testing.T) {
	for _, x := range []struct {
		name  string
		act   func(*member) (revision int64)
		after string
	}{
		{"a later key goes afterwards", func(m *member) int64 {
			at := m.remove(t, keyOf(1))
			m.remove(t, keyOf(3))
			return at
		}, keyOf(1)},
		{"another key is rewritten in the same revision", func(m *member) int64 {
			return m.apply(t, &fsm.Txn{Then: []fsm.Op{
				{Delete: &fsm.DeleteRange{Key: keyOf(1)}},
				{Put: &fsm.Put{Key: keyOf(3), Lease: 3, Value: []byte("w")}},
			}})
		}, keyOf(1)},
		{"a value changes after a later key went", func(m *member) int64 {
			m.remove(t, keyOf(3))
			return m.put(t, keyOf(1), 1, "r")
		}, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			m := newMember(100)
			m.grant(t, 1, 2, 3)
			for id := lease.ID(1); id <= 3; id++ {
				m.put(t, keyOf(id), id, "w")
			}
			two := &recorder{}
			if _, n := m.queues.Wait(Ask{
				Key: keyOf(2), Prefix: "l/", Permits: 1, Skips: true, IgnoredValue: "r",
			}, m.view.Load().KV.Revision(), two); n.State != Waiting {
				t.Fatalf("entered: %+v", n)
			}
			at := x.act(m)
			m.hub.Distribute()
			if n := two.want(t, Ready)[0]; n.After != x.after || n.Revision != at {
				t.Errorf("got %+v, want Ready after %q at %d", n, x.after, at)
			}
		})
	}
}

// TestEnterBetween checks that entering a queue that is already followed does not disturb its
// waiters. The next waiter is still notified with the key that ended before it.
func TestEnterBetween(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2, 3)
	for id := lease.ID(1); id <= 3; id++ {
		m.put(t, keyOf(id), id, "")
	}
	m.wait(t, 1, Ready)
	_, two := m.wait(t, 2, Waiting)
	known := m.put(t, "other", 0, "")
	m.hub.Distribute()
	m.remove(t, keyOf(1))
	if _, n := m.ask(3, known, &recorder{}); n.State != Waiting {
		t.Fatalf("entered: %+v", n)
	}
	m.hub.Distribute()
	if n := two.want(t, Ready)[0]; n.After != keyOf(1) {
		t.Errorf("got %+v, want Ready after key 1", n)
	}
}

// TestRevisionOfAnswer checks that a ticket's state is returned together with a revision at which
// it was true. At the requested revision, it was another ticket's turn. The test uses a followed
// and an unfollowed queue.
func TestRevisionOfAnswer(t *testing.T) {
	for _, followed := range []bool{false, true} {
		m := newMember(100)
		m.hub.Want(1)
		m.grant(t, 1, 2, 3)
		for id := lease.ID(1); id <= 3; id++ {
			m.put(t, keyOf(id), id, "")
		}
		asOf := m.view.Load().KV.Revision()
		if followed {
			m.wait(t, 3, Waiting)
		}
		gone := m.remove(t, keyOf(1))
		if followed {
			m.hub.Distribute()
		}
		if _, n := m.ask(2, asOf, &recorder{}); n.State != Ready || n.Revision != gone {
			t.Errorf("followed %v: %+v, want Ready at %d", followed, n, gone)
		}
	}
}

// TestBeforePublished checks that a ticket that this member has applied is found even if the hub
// has not received its event yet.
func TestBeforePublished(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2)
	m.put(t, keyOf(1), 1, "")
	m.wait(t, 1, Ready)
	at, publish := m.applyUnpublished(t, &fsm.Put{Key: keyOf(2), Lease: 2})
	two := &recorder{}
	if _, n := m.ask(2, at, two); n.State != Waiting || n.Created != at {
		t.Errorf("entered: %+v", n)
	}
	publish()
	m.hub.Distribute()
	two.want(t)
	m.remove(t, keyOf(1))
	m.hub.Distribute()
	two.want(t, Ready)
}

// TestEventsAppliedOnce checks that events already included when a queue was read are not applied
// again when they are distributed. A waiter for a recreated key is not notified of the old key's
// end.
func TestEventsAppliedOnce(t *testing.T) {
	m := newMember(100)
	m.hub.Want(1)
	m.grant(t, 1, 2)
	m.put(t, keyOf(1), 1, "")
	m.put(t, keyOf(2), 2, "")
	m.remove(t, keyOf(1))
	m.put(t, keyOf(1), 1, "")
	m.apply(t, &fsm.Txn{Then: []fsm.Op{
		{Delete: &fsm.DeleteRange{Key: keyOf(2)}},
		{Put: &fsm.Put{Key: keyOf(2), Lease: 2}},
	}})
	_, one := m.wait(t, 1, Ready)
	_, two := m.wait(t, 2, Waiting)
	m.hub.Distribute()
	one.want(t)
	two.want(t)
}

// manyInQueue returns a member with a queue long enough to be read without holding the lock.
func manyInQueue(t *testing.T) *member {
	t.Helper()
	m := newMember(1 << 16)
	for id := lease.ID(1); id <= fewKeys+10; id++ {
		m.grant(t, id)
		m.put(t, keyOf(id), id, "")
	}
	return m
}

// TestEventsAppliedOnceUnlocked is like TestEventsAppliedOnce, but the events happen while a queue
// is being read.
func TestEventsAppliedOnceUnlocked(t *testing.T) {
	m := manyInQueue(t)
	m.queues.afterRead = func() {
		m.apply(t, &fsm.Revoke{ID: 1})
		m.hub.Distribute()
		m.remove(t, keyOf(2))
		m.put(t, keyOf(2), 2, "")
	}
	at := m.view.Load().KV.Revision()
	_, n := m.ask(3, at, &recorder{})
	if now := m.view.Load().KV.Revision(); n.State != Ready || n.Revision != now {
		t.Errorf("entered: %+v, want Ready at %d", n, now)
	}
	if _, n := m.ask(2, at, &recorder{}); n.State != Gone {
		t.Errorf("as of the old revision: %+v, want Gone", n)
	}
	_, two := m.wait(t, 2, Waiting)
	m.hub.Distribute()
	two.want(t)
}

// TestEnterDuringRead checks that a waiter that enters a queue while another waiter reads it waits
// for that read. It does not delay other queues, and does not read the queue itself.
func TestEnterDuringRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := manyInQueue(t)
		at := m.view.Load().KV.Revision()
		var all sync.WaitGroup
		reads := 0
		m.queues.afterRead = func() {
			if reads++; reads > 1 {
				return
			}
			for id := lease.ID(2); id <= 4; id++ {
				all.Go(func() {
					if _, n := m.ask(id, at, &recorder{}); n.State != Waiting {
						t.Errorf("ticket %d: %+v", id, n)
					}
				})
			}
			synctest.Wait()
			m.grant(t, 1000)
			m.queues.Wait(Ask{Key: "m/3e8", Prefix: "m/", Permits: 1}, m.put(t, "m/3e8", 1000, ""), &recorder{})
		}
		m.wait(t, 1, Ready)
		all.Wait()
		if s := m.queues.Stats(); s != (Stats{Queues: 2, Waiting: 5}) || reads != 1 {
			t.Errorf("%+v after %d reads", s, reads)
		}
	})
}

// TestFirstEnd checks that the first end of a key is returned, even if the key has been recreated
// since or was overwritten before.
func TestFirstEnd(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2)
	made := m.put(t, keyOf(1), 1, "")
	m.put(t, keyOf(1), 1, "another value")
	gone := m.apply(t, &fsm.Revoke{ID: 1})
	m.put(t, keyOf(1), 2, "")
	m.remove(t, keyOf(1))
	if _, n := m.ask(1, made, &recorder{}); n.State != Gone || n.Why != fsm.Revoked || n.Lease != 1 ||
		n.Revision != gone || n.Created != made {
		t.Errorf("got %+v", n)
	}
}

// TestCompactedBeforeEnd checks that the cause of a key's end is known as long as it is in the
// history, even if the queue was last followed before the compaction.
func TestCompactedBeforeEnd(t *testing.T) {
	for _, between := range []int{0, 2} {
		t.Run(fmt.Sprint(between), func(t *testing.T) {
			m, _, two, _ := threeInQueue(t)
			m.hub.Distribute()
			at := int64(0)
			for range between {
				at = m.put(t, "other", 0, "")
			}
			gone := m.apply(t, &fsm.Revoke{ID: 2})
			if between == 0 {
				at = gone
			}
			m.apply(t, &fsm.Compact{Revision: at})
			m.hub.Restore(m.view.Load().KV.Revision() + 1)
			m.hub.Distribute()
			if n := two.want(t, Gone)[0]; n.Unknown || n.Why != fsm.Revoked || n.Lease != 2 ||
				n.Revision != gone {
				t.Errorf("got %+v", n)
			}
		})
	}
}

// TestEnded checks that Ended returns the cause of a key's end while it is known, and never the
// cause for a later key of the same name.
func TestEnded(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2, 3)
	first := m.put(t, keyOf(1), 1, "")
	ended := func(created int64) News { return Ended(m.view.Load().KV, keyOf(1), created) }
	if n := ended(first); n != (News{}) {
		t.Errorf("the key exists: %+v", n)
	}
	gone := m.apply(t, &fsm.Revoke{ID: 1})
	want := News{State: Gone, Revision: gone, Created: first, Why: fsm.Revoked, Lease: 1}
	if n := ended(first); n != want {
		t.Errorf("deleted: %+v, want %+v", n, want)
	}
	second := m.put(t, keyOf(1), 2, "")
	if n := ended(first); n != want {
		t.Errorf("recreated: %+v, want %+v", n, want)
	}
	m.apply(t, &fsm.Compact{Revision: second})
	unknown := News{State: Gone, Revision: second, Created: first, Unknown: true}
	if n := ended(first); n != unknown {
		t.Errorf("deleted before the compaction: %+v, want %+v", n, unknown)
	}
	other := m.put(t, "other", 0, "")
	m.apply(t, &fsm.Compact{Revision: other})
	gone = m.apply(t, &fsm.Revoke{ID: 2})
	want = News{State: Gone, Revision: gone, Created: second, Why: fsm.Revoked, Lease: 2}
	if n := ended(second); n != want {
		t.Errorf("deleted after the compaction: %+v, want %+v", n, want)
	}
	unknown.Revision = gone
	if n := ended(first); n != unknown {
		t.Errorf("the earlier key: %+v, want %+v", n, unknown)
	}
	third := m.put(t, keyOf(1), 3, "")
	at := m.remove(t, keyOf(1))
	if n := ended(third); n.State != Gone || n.Why != fsm.Deleted || n.Revision != at || n.Unknown {
		t.Errorf("deleted by a request: %+v", n)
	}
	m.apply(t, &fsm.Compact{Revision: at})
	if n := ended(third); !n.Unknown {
		t.Errorf("deleted at the compaction: %+v", n)
	}
}

// TestLeaveFreesRanks checks that a queue with a long-term waiter keeps no data about departed
// waiters that had other terms.
func TestLeaveFreesRanks(t *testing.T) {
	m := newMember(100)
	m.grant(t, 1, 2)
	m.put(t, keyOf(1), 1, "")
	at := m.put(t, keyOf(2), 2, "")
	stays, _ := m.wait(t, 1, Ready)
	for i := range 20 {
		for _, skips := range []bool{false, true} {
			e, _ := m.queues.Wait(Ask{
				Key: keyOf(2), Prefix: "l/", Permits: int64(i + 1), Skips: skips, IgnoredValue: fmt.Sprint(i),
			}, at, &recorder{})
			e.Leave()
		}
	}
	if q := stays.queue; len(q.kinds) != 1 || len(q.kinds[0].ranks) != 1 {
		t.Errorf("%d kinds are left, the first with %d ranks; want 1 and 1", len(q.kinds), len(q.kinds[0].ranks))
	}
	stays.Leave()
	if m.hub.Wanted() {
		t.Error("the hub keeps events without a waiter")
	}
}
