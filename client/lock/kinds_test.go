package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestRWMutex checks that readers share the lock, that writers exclude all others, and that
// sessions are served in order of arrival.
func TestRWMutex(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		c := members.connect(t)
		a, b := lock.NewRWMutex(session(t, c), "rw"), lock.NewRWMutex(session(t, c), "rw")
		writer := lock.NewRWMutex(session(t, c), "rw")
		take := rig.Must[*lock.Held](t)
		unlock := func(list ...*lock.Held) {
			t.Helper()
			for _, h := range list {
				if err := h.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		}
		first, second := take(a.RLock(ctx)), take(b.RLock(ctx))
		third := take(a.TryRLock(ctx)) // a second time by the same session
		if _, err := writer.TryLock(ctx); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("writer next to readers: %v", err)
		}
		rig.Keys(t, c, "rw/", 3)
		write := rig.Async(func() (*lock.Held, error) { return writer.Lock(ctx) })
		rig.Keys(t, c, "rw/", 4)
		if _, err := a.TryRLock(ctx); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("reader overtakes a writer: %v", err)
		}
		var reads []<-chan rig.Answer[*lock.Held]
		for i := range 3 {
			reads = append(reads, rig.Async(func() (*lock.Held, error) { return a.RLock(ctx) }))
			rig.Keys(t, c, "rw/", 5+i)
		}
		mutex := rig.Async(func() (*lock.Held, error) {
			return lock.NewMutex(session(t, c), "rw").Lock(ctx)
		})
		rig.Keys(t, c, "rw/", 8)
		late := rig.Async(func() (*lock.Held, error) { return b.RLockWithin(ctx, time.Minute) })
		rig.Keys(t, c, "rw/", 9)
		unlock(second, first, third)
		w := <-write
		if w.Err != nil {
			t.Fatal(w.Err)
		}
		unlock(w.Value)
		var together []*lock.Held
		for _, r := range reads {
			got := <-r
			if got.Err != nil || got.Value.Token() <= w.Value.Token() {
				t.Fatalf("reader after the writer: %+v", got)
			}
			together = append(together, got.Value)
		}
		rig.Keys(t, c, "rw/", 5)
		if _, err := b.RLockWithin(ctx, time.Millisecond); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("reader overtakes a mutex: %v", err)
		}
		unlock(together...)
		m := <-mutex
		if m.Err != nil {
			t.Fatal(m.Err)
		}
		unlock(m.Value)
		if l := <-late; l.Err != nil {
			t.Fatal(l.Err)
		}
	})
}

// TestSemaphore checks that a semaphore is held by as many sessions as it has permits, in order of
// arrival, and that a canceled waiter does not free a permit.
func TestSemaphore(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		c := members.connect(t)
		a := lock.NewSemaphore(session(t, c), "sem", 2)
		b := lock.NewSemaphore(session(t, c), "sem", 2)
		first, second := rig.Must[*lock.Held](t)(a.Acquire(ctx)), rig.Must[*lock.Held](t)(a.Acquire(ctx))
		if _, err := b.TryAcquire(ctx); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("third: %v, want ErrLocked", err)
		}
		if _, err := b.AcquireWithin(ctx, time.Millisecond); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("third, with a timeout: %v, want ErrLocked", err)
		}
		rig.Keys(t, c, "sem/", 2)
		brief, cancel := context.WithCancel(ctx)
		third := rig.Async(func() (*lock.Held, error) { return b.Acquire(brief) })
		rig.Keys(t, c, "sem/", 3)
		fourth := rig.Async(func() (*lock.Held, error) { return b.Acquire(ctx) })
		rig.Keys(t, c, "sem/", 4)
		limited := rig.Async(func() (*lock.Held, error) { return b.AcquireWithin(brief, time.Hour) })
		rig.Keys(t, c, "sem/", 5)
		cancel()
		for _, w := range []<-chan rig.Answer[*lock.Held]{third, limited} {
			if got := <-w; !errors.Is(got.Err, context.Canceled) || errors.Is(got.Err, lock.ErrLocked) {
				t.Errorf("canceled: %v", got.Err)
			}
		}
		rig.Keys(t, c, "sem/", 3)
		select {
		case got := <-fourth:
			t.Fatalf("three sessions have two permits: %+v", got)
		default:
		}
		if err := first.Release(ctx); err != nil {
			t.Fatal(err)
		}
		got := <-fourth
		if got.Err != nil || got.Value.Token() <= second.Token() {
			t.Fatalf("fourth: %+v", got)
		}
		if !holds(t, c, second) || !holds(t, c, got.Value) || holds(t, c, first) {
			t.Error("the wrong two sessions hold it")
		}
	})
}

// TestRWMutexSelfDeadlock checks that a session that holds the lock for reading gets an error
// instead of a deadlock if it tries to lock it for writing, and vice versa. Once the session has
// released the lock, it can lock it for writing.
func TestRWMutexSelfDeadlock(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		c := members.connect(t)
		m, other := lock.NewRWMutex(session(t, c), "rw"), lock.NewRWMutex(session(t, c), "rw")
		reads := rig.Must[*lock.Held](t)(m.RLock(ctx))
		for name, try := range map[string]func(context.Context) (*lock.Held, error){
			"lock": m.Lock, "try": m.TryLock,
		} {
			if _, err := try(ctx); !errors.Is(err, lock.ErrInUse) {
				t.Errorf("%s while reading: %v", name, err)
			}
		}
		if err := reads.Release(ctx); err != nil {
			t.Fatal(err)
		}
		writes := rig.Must[*lock.Held](t)(m.Lock(ctx))
		if _, err := m.RLock(ctx); !errors.Is(err, lock.ErrInUse) {
			t.Errorf("read while writing: %v", err)
		}
		if _, err := other.RLockWithin(ctx, 1); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("read by another session while writing: %v", err)
		}
		if err := writes.Release(ctx); err != nil {
			t.Fatal(err)
		}
		// The reader's key is deleted in the background and does not block the writer.
		rig.Must[*lock.Held](t)(other.Lock(ctx))
	})
}

// TestSemaphorePermits checks that all programs must use the number of permits that the first
// program stored.
func TestSemaphorePermits(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		c := members.connect(t)
		rig.Must[*lock.Held](t)(lock.NewSemaphore(session(t, c), "sem", 2).TryAcquire(ctx))
		three := lock.NewSemaphore(session(t, c), "sem", 3)
		for name, try := range map[string]func(context.Context) (*lock.Held, error){
			"acquire": three.Acquire, "try": three.TryAcquire,
		} {
			if _, err := try(ctx); !errors.Is(err, client.ErrInvalid) {
				t.Errorf("%s with another number of permits: %v", name, err)
			}
		}
		rig.Keys(t, c, "sem/", 1)
		rig.Must[*lock.Held](t)(lock.NewSemaphore(session(t, c), "sem", 2).Acquire(ctx))
	})
}

// TestT18LockOutlivesTTL checks that a lock lasts as long as its session, even beyond the TTL, and
// that its release leaves no keys behind.
func TestT18LockOutlivesTTL(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		c, other := members.connect(t), members.connect(t)
		const ttl = 9 * time.Second
		var sessions [2]*client.Session
		for i, c := range []*client.Client{c, other} {
			sessions[i] = rig.Must[*client.Session](t)(c.Open(ctx, client.Grant{TTL: ttl}))
		}
		held := rig.Must[*lock.Held](t)(lock.NewMutex(sessions[0], "alone").Lock(ctx))
		m := lock.NewMutex(sessions[1], "alone")
		next := rig.Async(func() (*lock.Held, error) { return m.Lock(ctx) })
		rig.Keys(t, c, "alone/", 2)
		select {
		case got := <-next:
			t.Fatalf("two sessions hold the lock: %+v", got)
		case <-held.Context().Done():
			t.Fatalf("the lock ended: %v", held.Err())
		case <-time.After(ttl * 5 / 4):
		}
		if err := sessions[0].Release(ctx); err != nil {
			t.Fatal(err)
		}
		got := <-next
		if got.Err != nil || got.Value.Token() <= held.Token() {
			t.Fatalf("next holder: %+v", got)
		}
		if err := sessions[1].Release(ctx); err != nil {
			t.Fatal(err)
		}
		for l, err := range c.List(ctx, leases.Filter{}) {
			t.Errorf("left behind: %+v, %v", l, err)
		}
	})
}

// TestDo checks that the function's context ends when the lock is lost, and that Do returns the
// reason.
func TestDo(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		c := members.connect(t)
		s := session(t, c)
		m := lock.NewMutex(s, "do")
		mine := errors.New("mine")
		err := m.Do(ctx, func(ctx context.Context, held *lock.Held) error {
			if !holds(t, c, held) || ctx.Err() != nil {
				t.Error("the lock is not held")
			}
			return mine
		})
		if !errors.Is(err, mine) || errors.Is(err, client.ErrLost) {
			t.Errorf("after a failure: %v", err)
		}
		err = m.Do(ctx, func(during context.Context, held *lock.Held) error {
			rig.Must[store.DeleteResult](t)(c.Delete(ctx, store.Delete{Key: held.Key()}))
			<-during.Done()
			return context.Cause(during)
		})
		if !errors.Is(err, client.ErrLost) || strings.Contains(err.Error(), "\n") {
			t.Errorf("after losing the lock: %v", err)
		}
		if err := m.Do(ctx, func(context.Context, *lock.Held) error { return nil }); err != nil {
			t.Error(err)
		}
		rig.Keys(t, c, "do/", 0)
	})
}
