package kubernetes

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"leasehold.dev/client"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

const ttl = time.Second

// term is a period in which a candidate leads.
type term struct {
	who      string
	token    uint64
	from, to time.Time // when its work began, and when its context ended
	why      error
}

// candidates run client-go's elector.
type candidates struct {
	t    *testing.T
	rig  *rig.Rig
	wait sync.WaitGroup

	mu    sync.Mutex
	terms []term
	began chan string // receives the name of each new leader
}

func newCandidates(t *testing.T) *candidates {
	return &candidates{t: t, rig: rig.New(t, 1), began: make(chan string, 100)}
}

// run runs a candidate until ctx ends, and restarts it whenever it stops leading.
func (c *candidates) run(ctx context.Context, name string) (*Lock, *client.Client) {
	c.t.Helper()
	lock, cl, elector := c.elector(name, true)
	c.wait.Go(func() {
		for ctx.Err() == nil {
			elector.Run(ctx)
		}
	})
	return lock, cl
}

// elector returns a candidate with its own client.
func (c *candidates) elector(
	name string, release bool,
) (*Lock, *client.Client, *leaderelection.LeaderElector) {
	c.t.Helper()
	cl := c.rig.Dial(client.Config{})
	lock, err := New(Config{Client: cl, Name: "test", Identity: name, TTL: ttl})
	if err != nil {
		c.t.Fatal(err)
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: ttl, RenewDeadline: 800 * time.Millisecond,
		RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: release,
		Callbacks: lock.Callbacks(leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { c.lead(ctx, name, lock) },
			OnStoppedLeading: func() {},
		}),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return lock, cl, elector
}

func (c *candidates) lead(ctx context.Context, name string, lock *Lock) {
	token, err := lock.Token()
	if err != nil {
		return // the lead was lost immediately
	}
	one := term{who: name, token: token, from: time.Now()}
	c.began <- name
	<-ctx.Done()
	one.to, one.why = time.Now(), context.Cause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.terms = append(c.terms, one)
}

// check stops the candidates and checks that no two terms overlap and that tokens increase.
func (c *candidates) check(stop context.CancelFunc) []term {
	c.t.Helper()
	stop()
	c.wait.Wait()
	<-time.After(ttl) // the elector does not wait for its callbacks
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, a := range c.terms {
		for _, b := range c.terms[:i] {
			if a.from.Before(b.to) && b.from.Before(a.to) {
				c.t.Errorf("%+v and %+v overlap", a, b)
			}
			if a.from.After(b.from) != (a.token > b.token) {
				c.t.Errorf("tokens of %+v and %+v are in another order than their leads", a, b)
			}
		}
	}
	return c.terms
}

// await returns the next event, and fails the test if none arrives.
func await[T any](t *testing.T, events <-chan T) (event T) {
	t.Helper()
	select {
	case event = <-events:
	case <-time.After(harness.Patience):
		t.Fatalf("nothing happens within %v", harness.Patience)
	}
	return event
}

// TestCutOff checks that an isolated leader stops before another candidate leads, and that this
// takes at most 1.5 s.
func TestCutOff(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCandidates(t)
		ctx, stop := context.WithCancel(t.Context())
		_, client1 := c.run(ctx, "a")
		if got := await(t, c.began); got != "a" {
			t.Fatalf("%s leads first", got)
		}
		c.run(ctx, "b")
		// Candidate b must not lead while a leads, even though the record of a does not change.
		time.Sleep(10 * ttl)
		cut := time.Now()
		c.rig.Cut(client1)
		if got := await(t, c.began); got != "b" {
			t.Fatalf("%s leads second", got)
		}
		if d := time.Since(cut); d > 3*ttl/2 {
			t.Errorf("b led %v after a was cut off; want at most %v", d, 3*ttl/2)
		}
		time.Sleep(2 * ttl)
		c.rig.Mend(client1)
		time.Sleep(2 * ttl)
		terms := c.check(stop)
		if len(terms) != 2 || terms[0].why == nil {
			t.Errorf("leads: %+v; want one of a and one of b", terms)
		}
	})
}

// TestReleased checks that a candidate that stops frees the lock immediately.
func TestReleased(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCandidates(t)
		ctx, stop := context.WithCancel(t.Context())
		first, end := context.WithCancel(ctx)
		c.run(first, "a")
		await(t, c.began)
		c.run(ctx, "b")
		time.Sleep(3 * ttl)
		ended := time.Now()
		end()
		if got := await(t, c.began); got != "b" {
			t.Fatalf("%s leads second", got)
		}
		if d := time.Since(ended); d > ttl/2 {
			t.Errorf("b led %v after a stopped; want less than the TTL of %v", d, ttl)
		}
		c.check(stop)
	})
}

// TestLost checks that a leader whose lease is revoked does not resume leading within the same
// callback, and leads again once its elector is restarted.
func TestLost(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCandidates(t)
		ctx, stop := context.WithCancel(t.Context())
		lock, cl := c.run(ctx, "a")
		await(t, c.began)
		live, err := lock.leading()
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.Revoke(ctx, live.Lease().Ref()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 10)
		if _, err := lock.Token(); !errors.Is(err, ErrNotLeading) {
			t.Errorf("Token: %v; want ErrNotLeading", err)
		}
		if err := lock.Create(ctx, resourcelock.LeaderElectionRecord{}); !errors.Is(err, ErrNotLeading) {
			t.Errorf("Create before the elector has stopped: %v; want ErrNotLeading", err)
		}
		await(t, c.began)
		if terms := c.check(stop); len(terms) != 2 {
			t.Errorf("leads: %+v; want two", terms)
		}
	})
}

// TestNotReleased checks that an elector that stops without releasing the lead loses it after a
// while, and can lead again.
func TestNotReleased(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCandidates(t)
		lock, cl, elector := c.elector("a", false)
		first, end := context.WithCancel(t.Context())
		c.wait.Go(func() { elector.Run(first) })
		await(t, c.began)
		end()
		time.Sleep(2 * ttl)
		if _, _, err := lock.Get(t.Context()); !apierrors.IsNotFound(err) {
			t.Errorf("Get twice the TTL after the elector stopped: %v; want NotFound", err)
		}
		c.rig.Cut(cl)
		time.Sleep(2 * ttl)
		c.rig.Mend(cl)
		ctx, stop := context.WithCancel(t.Context())
		c.wait.Go(func() { elector.Run(ctx) })
		await(t, c.began)
		c.check(stop)
	})
}

// TestStart checks that Start, which a controller manager runs, fails if the lead is lost but not
// if the manager stops.
func TestStart(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := rig.New(t, 1).Dial(client.Config{})
		lock, err := New(Config{Client: cl, Name: "test", Identity: "a", TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := lock.Get(t.Context()); !apierrors.IsNotFound(err) {
			t.Errorf("Get: %v; want NotFound", err)
		}
		own := resourcelock.LeaderElectionRecord{HolderIdentity: "a"}
		if err := lock.Create(t.Context(), own); err != nil {
			t.Fatal(err)
		}
		if r, _, err := lock.Get(t.Context()); err != nil || r.HolderIdentity != "a" {
			t.Errorf("Get: %+v, %v; want holder a", r, err)
		}
		if err := lock.Create(t.Context(), own); !apierrors.IsAlreadyExists(err) {
			t.Errorf("Create again: %v; want AlreadyExists", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- lock.Start(ctx) }()
		time.Sleep(ttl)
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("Start of a manager that stops: %v", err)
		}
		go func() { stopped <- lock.Start(t.Context()) }()
		live, err := lock.leading()
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.Revoke(t.Context(), live.Lease().Ref()); err != nil {
			t.Fatal(err)
		}
		if err := <-stopped; err == nil {
			t.Error("Start after the lease was revoked: nil; want an error")
		}
		if err := lock.Update(t.Context(), own); !apierrors.IsConflict(err) {
			t.Errorf("Update after the loss: %v; want Conflict", err)
		}
	})
}
