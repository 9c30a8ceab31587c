package coord_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/coord"
)

// TestRWMutex: readers hold together, writers alone, and all in the order in which they came.
func TestRWMutex(t *testing.T) {
	t.Parallel()
	members := newCluster(t, 1)
	ctx := ask(t)
	c := members.connect(t)
	a, b := coord.NewRWMutex(session(t, c), "rw"), coord.NewRWMutex(session(t, c), "rw")
	lock := must[*coord.Held](t)
	unlock := func(list ...*coord.Held) {
		t.Helper()
		for _, h := range list {
			if err := h.Unlock(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	first, second := lock(a.RLock(ctx)), lock(b.RLock(ctx))
	third := lock(a.TryRLock(ctx)) // of the same session
	if _, err := b.TryLock(ctx); !errors.Is(err, coord.ErrLocked) {
		t.Errorf("a writer beside readers: %v", err)
	}
	keys(t, c, "rw/", 3)
	write := async(func() (*coord.Held, error) { return b.Lock(ctx) })
	keys(t, c, "rw/", 4)
	if _, err := a.TryRLock(ctx); !errors.Is(err, coord.ErrLocked) {
		t.Errorf("a reader overtakes a writer: %v", err)
	}
	var reads []<-chan answer[*coord.Held]
	for i := range 3 {
		reads = append(reads, async(func() (*coord.Held, error) { return a.RLock(ctx) }))
		keys(t, c, "rw/", 5+i)
	}
	mutex := async(func() (*coord.Held, error) {
		return coord.NewMutex(session(t, c), "rw").Lock(ctx)
	})
	keys(t, c, "rw/", 8)
	late := async(func() (*coord.Held, error) { return b.RLockWithin(ctx, time.Minute) })
	keys(t, c, "rw/", 9)
	unlock(second, first, third)
	w := <-write
	if w.err != nil {
		t.Fatal(w.err)
	}
	unlock(w.value)
	var together []*coord.Held
	for _, r := range reads {
		got := <-r
		if got.err != nil || got.value.Token() <= w.value.Token() {
			t.Fatalf("a reader after the writer: %+v", got)
		}
		together = append(together, got.value)
	}
	keys(t, c, "rw/", 5)
	if _, err := b.RLockWithin(ctx, time.Millisecond); !errors.Is(err, coord.ErrLocked) {
		t.Errorf("a reader overtakes a mutex: %v", err)
	}
	unlock(together...)
	m := <-mutex
	if m.err != nil {
		t.Fatal(m.err)
	}
	unlock(m.value)
	if l := <-late; l.err != nil {
		t.Fatal(l.err)
	}
}

// TestSemaphore: as many hold it as there are permits, in the order in which they came, and
// who gives up waiting frees none.
func TestSemaphore(t *testing.T) {
	t.Parallel()
	members := newCluster(t, 1)
	ctx := ask(t)
	c := members.connect(t)
	a := coord.NewSemaphore(session(t, c), "sem", 2)
	b := coord.NewSemaphore(session(t, c), "sem", 2)
	first, second := must[*coord.Held](t)(a.Acquire(ctx)), must[*coord.Held](t)(a.Acquire(ctx))
	if _, err := b.TryAcquire(ctx); !errors.Is(err, coord.ErrLocked) {
		t.Errorf("the third: %v", err)
	}
	if _, err := b.AcquireWithin(ctx, time.Millisecond); !errors.Is(err, coord.ErrLocked) {
		t.Errorf("the third, who waits: %v", err)
	}
	keys(t, c, "sem/", 2)
	brief, cancel := context.WithCancel(ctx)
	third := async(func() (*coord.Held, error) { return b.Acquire(brief) })
	keys(t, c, "sem/", 3)
	fourth := async(func() (*coord.Held, error) { return b.Acquire(ctx) })
	keys(t, c, "sem/", 4)
	cancel()
	if got := <-third; !errors.Is(got.err, context.Canceled) {
		t.Errorf("who gave up: %v", got.err)
	}
	keys(t, c, "sem/", 3)
	select {
	case got := <-fourth:
		t.Fatalf("three have two permits: %+v", got)
	default:
	}
	if err := first.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	got := <-fourth
	if got.err != nil || got.value.Token() <= second.Token() {
		t.Fatalf("the fourth: %+v", got)
	}
	if !holds(t, c, second) || !holds(t, c, got.value) || holds(t, c, first) {
		t.Error("the wrong two hold it")
	}
}

// TestT18LockWithoutSession: a lock without a session lasts as long as it is held, not for the
// TTL of a lease that nobody keeps alive, and leaves nothing behind.
func TestT18LockWithoutSession(t *testing.T) {
	t.Parallel()
	members := newCluster(t, 1)
	ctx := ask(t)
	c, other := members.connect(t), members.connect(t)
	const ttl = 3 * time.Second // two thirds of which the machine may stand still
	held := must[*coord.Held](t)(coord.Lock(ctx, c, "alone", ttl))
	if _, err := coord.TryLock(ctx, other, "alone", ttl); !errors.Is(err, coord.ErrLocked) {
		t.Fatalf("the second: %v", err)
	}
	next := async(func() (*coord.Held, error) { return coord.Lock(ctx, other, "alone", ttl) })
	keys(t, c, "alone/", 2)
	select {
	case got := <-next:
		t.Fatalf("two have it: %+v", got)
	case <-held.Context().Done():
		t.Fatalf("it ended: %v", held.Err())
	case <-time.After(2 * ttl):
	}
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	got := <-next
	if got.err != nil || got.value.Token() <= held.Token() {
		t.Fatalf("the next: %+v", got)
	}
	if err := got.value.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	for l, err := range c.List(ctx, client.Filter{}) {
		t.Errorf("left behind: %+v, %v", l, err)
	}
}

// TestDo: what runs under a lock is told that the lock is over, and so is its caller.
func TestDo(t *testing.T) {
	t.Parallel()
	members := newCluster(t, 1)
	ctx := ask(t)
	c := members.connect(t)
	s := session(t, c)
	m := coord.NewMutex(s, "do")
	mine := errors.New("mine")
	err := m.Do(ctx, func(ctx context.Context, held *coord.Held) error {
		if !holds(t, c, held) || ctx.Err() != nil {
			t.Error("it is not held")
		}
		return mine
	})
	if !errors.Is(err, mine) || errors.Is(err, coord.ErrLost) {
		t.Errorf("after a failure: %v", err)
	}
	err = m.Do(ctx, func(during context.Context, held *coord.Held) error {
		must[client.DeleteResult](t)(c.Delete(ctx, client.Delete{Key: held.Key()}))
		<-during.Done()
		return context.Cause(during)
	})
	if !errors.Is(err, coord.ErrLost) {
		t.Errorf("after a loss: %v", err)
	}
	if err := m.Do(ctx, func(context.Context, *coord.Held) error { return nil }); err != nil {
		t.Error(err)
	}
	keys(t, c, "do/", 0)
}
