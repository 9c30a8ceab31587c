package coord_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/coord"
	"leasehold.dev/test/inprocess"
)

// TestMutex: with three members, what the mutex does.
func TestMutex(t *testing.T) {
	t.Parallel()
	members := newCluster(t, 3)
	c := members.connect(t)
	for name, test := range map[string]func(*testing.T, *client.Client){
		"order": inOrder, "try": try, "within": within, "again": again, "cancelled": cancelled,
		"names": names, "deleted": deleted, "T16 waiter": waiterLosesLease,
		"T16 T28 unlock": lateUnlock, "T25": leaseEnds, "owner": owner,
		"key, then lease": keyThenLease,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// inOrder: waiters have the lock one after the other, in the order in which they came,
// each with a larger token (L5).
func inOrder(t *testing.T, c *client.Client) {
	ctx := ask(t)
	var waiting []<-chan answer[*coord.Held]
	const n = 10
	for i := range n {
		m := coord.NewMutex(session(t, c), "order")
		waiting = append(waiting, async(func() (*coord.Held, error) { return m.Lock(ctx) }))
		keys(t, c, "order/", i+1)
	}
	var last *coord.Held
	for i, w := range waiting {
		a := <-w
		if a.err != nil {
			t.Fatal(a.err)
		}
		if last != nil && (a.value.Token() <= last.Token() || a.value.Revision() <= last.Revision()) {
			t.Errorf("token %d after %d", a.value.Token(), last.Token())
		}
		last = a.value
		if len(keys(t, c, "order/", n-i)[0].Value) != 0 {
			t.Error("the key has a value")
		}
		for _, later := range waiting[i+1:] {
			select {
			case a := <-later:
				t.Fatalf("two have the lock: %v", a)
			default:
			}
		}
		if err := last.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(context.Cause(last.Context()), coord.ErrUnlocked) {
			t.Errorf("after the unlock: %v", context.Cause(last.Context()))
		}
	}
}

func try(t *testing.T, c *client.Client) {
	ctx := ask(t)
	first := session(t, c)
	a, b := coord.NewMutex(first, "try"), coord.NewMutex(session(t, c), "try")
	held := must[*coord.Held](t)(a.TryLock(ctx))
	_, err := b.TryLock(ctx)
	if !errors.Is(err, coord.ErrLocked) || !blames(err, first.Lease().ID()) {
		t.Errorf("the second: %v", err)
	}
	if _, err := a.TryLock(ctx); !errors.Is(err, coord.ErrInUse) {
		t.Errorf("the first again: %v", err)
	}
	keys(t, c, "try/", 1)
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	// Somebody is in the line, but not in the way.
	if _, err := c.Put(ctx, client.Put{Key: "try/other/1"}); err != nil {
		t.Fatal(err)
	}
	held = must[*coord.Held](t)(b.TryLock(ctx))
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
}

// within: who waits for some time only leaves no place behind.
func within(t *testing.T, c *client.Client) {
	ctx := ask(t)
	a, b := coord.NewMutex(session(t, c), "within"), coord.NewMutex(session(t, c), "within")
	for _, none := range []time.Duration{-1, 0, 1} { // a free lock is had without any time
		held := must[*coord.Held](t)(a.LockWithin(ctx, none))
		if _, err := b.LockWithin(ctx, none); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("the second: %v", err)
		}
		if err := held.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}
	held := must[*coord.Held](t)(a.LockWithin(ctx, time.Millisecond))
	if _, err := b.LockWithin(ctx, time.Millisecond); !errors.Is(err, coord.ErrLocked) {
		t.Errorf("the second: %v", err)
	}
	keys(t, c, "within/", 1)
	next := async(func() (*coord.Held, error) { return b.LockWithin(ctx, time.Minute) })
	keys(t, c, "within/", 2)
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if a := <-next; a.err != nil {
		t.Fatal(a.err)
	}
}

// again: one session does not have, or wait for, a lock twice, nor unlock it twice.
func again(t *testing.T, c *client.Client) {
	ctx := ask(t)
	s := session(t, c)
	m := coord.NewMutex(s, "again")
	held := must[*coord.Held](t)(m.Lock(ctx))
	for _, other := range []*coord.Mutex{
		m, coord.NewMutex(s, "again"), coord.NewMutex(coord.NewSession(c, s.Lease()), "again"),
	} {
		if _, err := other.Lock(ctx); !errors.Is(err, coord.ErrInUse) {
			t.Errorf("locked twice: %v", err)
		}
	}
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	next := must[*coord.Held](t)(m.Lock(ctx))
	if err := held.Unlock(ctx); !errors.Is(err, coord.ErrUnlocked) {
		t.Errorf("unlocked twice: %v", err)
	}
	if next.Err() != nil || !holds(t, c, next) {
		t.Error("the second unlock has unlocked the second lock")
	}
}

// holds reports whether a transaction of the holder would be done.
func holds(t testing.TB, c *client.Client, h *coord.Held) bool {
	t.Helper()
	return must[client.TxnResult](t)(c.Txn(ask(t), client.Txn{
		If: []client.Compare{h.Owner()},
	})).Succeeded
}

// cancelled: a waiter who gives up leaves no place behind, and may come again at once.
func cancelled(t *testing.T, c *client.Client) {
	ctx := ask(t)
	held := must[*coord.Held](t)(coord.NewMutex(session(t, c), "cancel").Lock(ctx))
	m := coord.NewMutex(session(t, c), "cancel")
	for range 3 {
		brief, cancel := context.WithCancel(ctx)
		second := async(func() (*coord.Held, error) { return m.Lock(brief) })
		keys(t, c, "cancel/", 2)
		cancel()
		if a := <-second; !errors.Is(a.err, context.Canceled) {
			t.Fatalf("cancelled: %v", a.err)
		}
	}
	keys(t, c, "cancel/", 1)
	last := async(func() (*coord.Held, error) { return m.Lock(ctx) })
	keys(t, c, "cancel/", 2)
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if a := <-last; a.err != nil {
		t.Fatal(a.err)
	}
}

// names: locks whose names begin with each other do not touch each other.
func names(t *testing.T, c *client.Client) {
	ctx := ask(t)
	s := session(t, c)
	for _, name := range []string{"n/a/b", "n/a", "n", "n/", "n//a"} {
		held := must[*coord.Held](t)(coord.NewMutex(s, name).Lock(ctx))
		if _, err := coord.NewMutex(session(t, c), name).TryLock(ctx); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("%q: %v", name, err)
		}
		defer held.Unlock(ctx)
	}
}

// deleted: who holds, or waits, is told that somebody deleted his key.
func deleted(t *testing.T, c *client.Client) {
	ctx := ask(t)
	held := must[*coord.Held](t)(coord.NewMutex(session(t, c), "deleted").Lock(ctx))
	m := coord.NewMutex(session(t, c), "deleted")
	second := async(func() (*coord.Held, error) { return m.Lock(ctx) })
	for _, kv := range keys(t, c, "deleted/", 2) {
		if kv.Key != held.Key() {
			must[client.DeleteResult](t)(c.Delete(ctx, client.Delete{Key: kv.Key}))
		}
	}
	if a := <-second; !errors.Is(a.err, coord.ErrLost) {
		t.Errorf("the waiter: %v", a.err)
	}
	must[client.DeleteResult](t)(c.Delete(ctx, client.Delete{Key: held.Key()}))
	<-held.Context().Done()
	if !errors.Is(held.Err(), coord.ErrLost) {
		t.Errorf("the holder: %v", held.Err())
	}
	if err := held.Unlock(ctx); !errors.Is(err, coord.ErrLost) {
		t.Errorf("the unlock: %v", err)
	}
}

// waiterLosesLease: a waiter is told at once that somebody revoked his lease.
func waiterLosesLease(t *testing.T, c *client.Client) {
	ctx := ask(t)
	held := must[*coord.Held](t)(coord.NewMutex(session(t, c), "t16").Lock(ctx))
	s := session(t, c)
	second := async(func() (*coord.Held, error) { return coord.NewMutex(s, "t16").Lock(ctx) })
	keys(t, c, "t16/", 2)
	other := session(t, c)
	third := async(func() (*coord.Held, error) { return coord.NewMutex(other, "t16").Lock(ctx) })
	keys(t, c, "t16/", 3)
	if err := s.Lease().Revoke(ctx); err != nil {
		t.Fatal(err)
	}
	if a := <-second; !errors.Is(a.err, client.ErrRevoked) {
		t.Errorf("the waiter: %v", a.err)
	}
	keys(t, c, "t16/", 2)
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if a := <-third; a.err != nil {
		t.Error(a.err)
	}
}

// lateUnlock: an unlock that comes late does not touch the lock of the next holder, even
// if he has the same key.
func lateUnlock(t *testing.T, c *client.Client) {
	ctx := ask(t)
	s := session(t, c)
	held := must[*coord.Held](t)(coord.NewMutex(s, "late").Lock(ctx))
	must[client.DeleteResult](t)(c.Delete(ctx, client.Delete{Key: held.Key()}))
	next := must[*coord.Held](t)(coord.NewMutex(coord.NewSession(c, s.Lease()), "late").Lock(ctx))
	if err := held.Unlock(ctx); !errors.Is(err, coord.ErrLost) {
		t.Errorf("the late unlock: %v", err)
	}
	// Who asks for the context only now is told what came first.
	if err := context.Cause(held.Context()); !errors.Is(err, coord.ErrLost) {
		t.Errorf("the late context: %v", err)
	}
	if next.Key() != held.Key() || !holds(t, c, next) || holds(t, c, held) {
		t.Error("it is not the second's")
	}
}

// keyThenLease: why the lock is over is what came first, whatever comes later.
func keyThenLease(t *testing.T, c *client.Client) {
	ctx := ask(t)
	s := session(t, c)
	held := must[*coord.Held](t)(coord.NewMutex(s, "first").Lock(ctx))
	over := held.Context()
	must[client.DeleteResult](t)(c.Delete(ctx, client.Delete{Key: held.Key()}))
	<-over.Done()
	s.Lease().Close()
	if !errors.Is(held.Err(), coord.ErrLost) || !errors.Is(context.Cause(over), coord.ErrLost) {
		t.Errorf("the holder: %v, of the context: %v", held.Err(), context.Cause(over))
	}
	if err := held.Unlock(ctx); !errors.Is(err, coord.ErrLost) {
		t.Errorf("the unlock: %v", err)
	}
}

// leaseEnds: a lock ends with the lease, and no other comes in its place.
func leaseEnds(t *testing.T, c *client.Client) {
	ctx := ask(t)
	s := session(t, c)
	held := must[*coord.Held](t)(coord.NewMutex(s, "t25").Lock(ctx))
	if err := s.Lease().Revoke(ctx); err != nil {
		t.Fatal(err)
	}
	<-held.Context().Done()
	if !errors.Is(held.Err(), client.ErrRevoked) ||
		!errors.Is(context.Cause(held.Context()), client.ErrRevoked) {
		t.Errorf("the holder: %v", held.Err())
	}
	if err := held.Unlock(ctx); !errors.Is(err, client.ErrRevoked) {
		t.Errorf("the unlock: %v", err)
	}
	if _, err := coord.NewMutex(s, "t25").Lock(ctx); !errors.Is(err, client.ErrRevoked) {
		t.Errorf("another lock: %v", err)
	}
}

// owner: the condition holds as long as the lock.
func owner(t *testing.T, c *client.Client) {
	ctx := ask(t)
	held := must[*coord.Held](t)(coord.NewMutex(session(t, c), "owner").Lock(ctx))
	if !holds(t, c, held) {
		t.Error("the holder may not write")
	}
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if holds(t, c, held) {
		t.Error("he still may")
	}
}

// TestLockAndClock: a lock is not held any more as soon as the clock says that its lease is not
// valid, although nothing has run since that could have said so, as after a pause (T16).
func TestLockAndClock(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	c := inprocess.Connect(t, client.Config{Now: now}, inprocess.Endpoints(newCluster(t, 1))...)
	held := must[*coord.Held](t)(coord.NewMutex(session(t, c), "clock").Lock(ask(t)))
	if err := held.Err(); err != nil {
		t.Fatal(err)
	}
	ahead.Store(int64(time.Hour))
	if err := held.Err(); !errors.Is(err, client.ErrExpired) {
		t.Errorf("the holder, an hour later: %v", err)
	}
}

// TestTryLate: who loses a race for a lock that was free when he looked does not have it, and
// leaves no place behind.
func TestTryLate(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).connect(t)
	ctx := ask(t)
	first := session(t, c)
	held := must[*coord.Held](t)(coord.NewMutex(first, "late").Lock(ctx))
	m := coord.NewMutex(session(t, c), "late")
	if _, err := m.TryLate(ctx); !errors.Is(err, coord.ErrLocked) ||
		!blames(err, first.Lease().ID()) {
		t.Errorf("the second: %v", err)
	}
	keys(t, c, "late/", 1)
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	held = must[*coord.Held](t)(m.TryLate(ctx))
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
}
