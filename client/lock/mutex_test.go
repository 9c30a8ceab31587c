package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
	"leasehold.dev/test/virtual"
)

// TestMutex tests mutexes with three members.
func TestMutex(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 3)
		c := members.connect(t)
		for name, test := range map[string]func(*testing.T, *client.Client){
			"order": inOrder, "try": try, "within": within, "again": again,
			"names": names, "deleted": deleted, "T16 waiter": waiterLosesLease,
			"T25":             leaseEnds,
			"key, then lease": keyThenLease,
		} {
			virtual.Step(t, name, func(t *testing.T) { test(t, c) })
		}
		virtual.Step(t, "T16 T28 unlock", func(t *testing.T) {
			lateUnlock(t, c, members.connect(t))
		})
	})
}

// inOrder checks that waiters get the lock one at a time in order of arrival, each with a larger
// token (L5).
func inOrder(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	var waiting []<-chan rig.Answer[*lock.Held]
	const n = 10
	for i := range n {
		m := lock.NewMutex(session(t, c), "order")
		waiting = append(waiting, rig.Async(func() (*lock.Held, error) { return m.Lock(ctx) }))
		rig.Keys(t, c, "order/", i+1)
	}
	var last *lock.Held
	for i, w := range waiting {
		a := <-w
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		if last != nil && (a.Value.Token() <= last.Token() || a.Value.Revision() <= last.Revision()) {
			t.Errorf("token %d after %d", a.Value.Token(), last.Token())
		}
		last = a.Value
		if len(rig.Keys(t, c, "order/", n-i)[0].Value) != 0 {
			t.Error("the key has a value")
		}
		for _, later := range waiting[i+1:] {
			select {
			case a := <-later:
				t.Fatalf("two sessions have the lock: %v", a)
			default:
			}
		}
		if err := last.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(context.Cause(last.Context()), client.ErrReleased) {
			t.Errorf("after the release: %v", context.Cause(last.Context()))
		}
	}
}

func try(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	first := session(t, c)
	a, b := lock.NewMutex(first, "try"), lock.NewMutex(session(t, c), "try")
	held := rig.Must[*lock.Held](t)(a.TryLock(ctx))
	_, err := b.TryLock(ctx)
	if !errors.Is(err, lock.ErrLocked) || !rig.Blames(err, first.Lease().ID()) {
		t.Errorf("second session: %v", err)
	}
	if _, err := a.TryLock(ctx); !errors.Is(err, lock.ErrInUse) {
		t.Errorf("first session again: %v", err)
	}
	rig.Keys(t, c, "try/", 1)
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	// This key starts with the prefix but is not in the queue.
	if _, err := c.Put(ctx, store.Put{Key: "try/other/1"}); err != nil {
		t.Fatal(err)
	}
	held = rig.Must[*lock.Held](t)(b.TryLock(ctx))
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

// within checks that a session whose wait times out leaves no ticket behind.
func within(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	a, b := lock.NewMutex(session(t, c), "within"), lock.NewMutex(session(t, c), "within")
	for _, none := range []time.Duration{-1, 0, 1} { // acquiring a free lock takes no time
		held := rig.Must[*lock.Held](t)(a.LockWithin(ctx, none))
		if _, err := b.LockWithin(ctx, none); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("second session: %v", err)
		}
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	held := rig.Must[*lock.Held](t)(a.LockWithin(ctx, time.Millisecond))
	if _, err := b.LockWithin(ctx, time.Millisecond); !errors.Is(err, lock.ErrLocked) {
		t.Errorf("second session: %v", err)
	}
	rig.Keys(t, c, "within/", 1)
	next := rig.Async(func() (*lock.Held, error) { return b.LockWithin(ctx, time.Minute) })
	rig.Keys(t, c, "within/", 2)
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if a := <-next; a.Err != nil {
		t.Fatal(a.Err)
	}
}

// again checks that a session cannot hold, wait for, or release a lock twice.
func again(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	s := session(t, c)
	m := lock.NewMutex(s, "again")
	held := rig.Must[*lock.Held](t)(m.Lock(ctx))
	// tried twice below, the second time after a failure
	twin := lock.NewMutex(s.Lease().Session(), "again")
	for _, other := range []*lock.Mutex{m, lock.NewMutex(s, "again"), twin, twin} {
		if _, err := other.Lock(ctx); !errors.Is(err, lock.ErrInUse) {
			t.Errorf("locked twice: %v", err)
		}
	}
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	next := rig.Must[*lock.Held](t)(m.Lock(ctx))
	if err := held.Release(ctx); !errors.Is(err, client.ErrReleased) {
		t.Errorf("second release: %v", err)
	}
	if next.Err() != nil || !holds(t, c, next) {
		t.Error("the second release released the second lock")
	}
}

// holds reports whether a transaction with the lock's condition would commit.
func holds(t testing.TB, c *client.Client, h *lock.Held) bool {
	t.Helper()
	return rig.Must[client.TxnResult](t)(c.Txn(rig.Soon(t), store.Txn{
		If: []store.Compare{h.Condition()},
	})).Succeeded
}

// names checks that locks are independent even if one lock's name is a prefix of another's.
func names(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	s := session(t, c)
	for _, name := range []string{"n/a/b", "n/a", "n", "n/", "n//a"} {
		held := rig.Must[*lock.Held](t)(lock.NewMutex(s, name).Lock(ctx))
		if _, err := lock.NewMutex(session(t, c), name).TryLock(ctx); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("%q: %v", name, err)
		}
		defer held.Release(ctx)
	}
}

// deleted checks that a holder and a waiter detect that another client deleted their keys.
func deleted(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	held := rig.Must[*lock.Held](t)(lock.NewMutex(session(t, c), "deleted").Lock(ctx))
	m := lock.NewMutex(session(t, c), "deleted")
	second := rig.Async(func() (*lock.Held, error) { return m.Lock(ctx) })
	for _, kv := range rig.Keys(t, c, "deleted/", 2) {
		if kv.Key != held.Key() {
			rig.Must[store.DeleteResult](t)(c.Delete(ctx, store.Delete{Key: kv.Key}))
		}
	}
	if a := <-second; !errors.Is(a.Err, client.ErrLost) {
		t.Errorf("waiter: %v, want ErrLost", a.Err)
	}
	rig.Must[store.DeleteResult](t)(c.Delete(ctx, store.Delete{Key: held.Key()}))
	<-held.Context().Done()
	if !errors.Is(held.Err(), client.ErrLost) {
		t.Errorf("holder: %v, want ErrLost", held.Err())
	}
	if err := held.Release(ctx); !errors.Is(err, client.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	if err := held.Release(ctx); !errors.Is(err, client.ErrReleased) {
		t.Errorf("second release: %v", err)
	}
}

// waiterLosesLease checks that a waiter promptly detects that its lease was revoked.
func waiterLosesLease(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	held := rig.Must[*lock.Held](t)(lock.NewMutex(session(t, c), "t16").Lock(ctx))
	s := session(t, c)
	second := rig.Async(func() (*lock.Held, error) { return lock.NewMutex(s, "t16").Lock(ctx) })
	rig.Keys(t, c, "t16/", 2)
	other := session(t, c)
	third := rig.Async(func() (*lock.Held, error) { return lock.NewMutex(other, "t16").Lock(ctx) })
	rig.Keys(t, c, "t16/", 3)
	if err := s.Lease().Revoke(ctx); err != nil {
		t.Fatal(err)
	}
	if a := <-second; !errors.Is(a.Err, client.ErrReleased) {
		t.Errorf("waiter: %v, want ErrReleased", a.Err)
	}
	rig.Keys(t, c, "t16/", 2)
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if a := <-third; a.Err != nil {
		t.Error(a.Err)
	}
}

// lateUnlock checks that a late release does not affect the lock of the next holder, even if that
// holder has the same key.
func lateUnlock(t *testing.T, c, other *client.Client) {
	ctx := rig.Soon(t)
	granted := rig.Must[*client.Granted](t)(c.GrantOnly(ctx, client.Grant{TTL: time.Minute}))
	s := rig.Must[*client.Lease](t)(c.Keep(granted, 0)).Session()
	held := rig.Must[*lock.Held](t)(lock.NewMutex(s, "late").Lock(ctx))
	rig.Must[store.DeleteResult](t)(c.Delete(ctx, store.Delete{Key: held.Key()}))
	twin := rig.Must[*client.Lease](t)(other.Keep(granted, 0)).Session()
	next := rig.Must[*lock.Held](t)(lock.NewMutex(twin, "late").Lock(ctx))
	if err := held.Release(ctx); !errors.Is(err, client.ErrLost) {
		t.Errorf("late release: %v", err)
	}
	// A context that is requested only now still ends with the first reason.
	if err := context.Cause(held.Context()); !errors.Is(err, client.ErrLost) {
		t.Errorf("late context: %v", err)
	}
	if next.Key() != held.Key() || !holds(t, c, next) || holds(t, c, held) {
		t.Error("the second session does not hold the lock")
	}
}

// keyThenLease checks that a lock reports the first event as the reason for its end, regardless of
// later events.
func keyThenLease(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	s := session(t, c)
	held := rig.Must[*lock.Held](t)(lock.NewMutex(s, "first").Lock(ctx))
	over := held.Context()
	rig.Must[store.DeleteResult](t)(c.Delete(ctx, store.Delete{Key: held.Key()}))
	<-over.Done()
	s.Lease().Close()
	if !errors.Is(held.Err(), client.ErrLost) || !errors.Is(context.Cause(over), client.ErrLost) {
		t.Errorf("holder: %v, context: %v", held.Err(), context.Cause(over))
	}
	if err := held.Release(ctx); !errors.Is(err, client.ErrLost) {
		t.Errorf("release: %v", err)
	}
}

// leaseEnds checks that a lock ends with its lease and is not acquired again.
func leaseEnds(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	s := session(t, c)
	held := rig.Must[*lock.Held](t)(lock.NewMutex(s, "t25").Lock(ctx))
	if err := s.Lease().Revoke(ctx); err != nil {
		t.Fatal(err)
	}
	<-held.Context().Done()
	if !errors.Is(held.Err(), client.ErrReleased) ||
		!errors.Is(context.Cause(held.Context()), client.ErrReleased) {
		t.Errorf("the holder: %v", held.Err())
	}
	if err := held.Release(ctx); !errors.Is(err, client.ErrReleased) {
		t.Errorf("the unlock: %v", err)
	}
	if _, err := lock.NewMutex(s, "t25").Lock(ctx); !errors.Is(err, client.ErrReleased) {
		t.Errorf("another lock: %v", err)
	}
}

// TestLockAndClock checks that a lock ends as soon as its lease is invalid by the clock, even if no
// code has run since then to notice, as after a pause (T16).
func TestLockAndClock(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		var ahead atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		c := inprocess.Connect(t, client.Config{Now: now}, inprocess.Endpoints(newCluster(t, 1))...)
		held := rig.Must[*lock.Held](t)(lock.NewMutex(session(t, c), "clock").Lock(rig.Soon(t)))
		if err := held.Err(); err != nil {
			t.Fatal(err)
		}
		ahead.Store(int64(time.Hour))
		if err := held.Err(); !errors.Is(err, client.ErrExpired) {
			t.Errorf("an hour later: %v, want ErrExpired", err)
		}
	})
}

// TestTryLate checks that a session does not get a lock that it found free if it then loses a race
// for it. The session leaves no ticket behind.
func TestTryLate(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCluster(t, 1).connect(t)
		ctx := rig.Soon(t)
		first := session(t, c)
		held := rig.Must[*lock.Held](t)(lock.NewMutex(first, "late").Lock(ctx))
		m := lock.NewMutex(session(t, c), "late")
		if _, err := m.TryLate(ctx, nothing); !errors.Is(err, lock.ErrLocked) ||
			!rig.Blames(err, first.Lease().ID()) {
			t.Errorf("second session: %v", err)
		}
		rig.Keys(t, c, "late/", 1)
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		held = rig.Must[*lock.Held](t)(m.TryLate(ctx, nothing))
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
	})
}
