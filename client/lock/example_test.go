package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// newSession opens a session for a program's locks and candidacies.
func newSession(c *client.Client) *client.Session {
	s, err := c.Open(context.Background(), client.Grant{})
	if err != nil {
		log.Fatal(err)
	}
	return s
}

// A program holds a lock while it works, and fences its writes.
func ExampleMutex() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	m := lock.NewMutex(newSession(c), "ledger")
	held, err := m.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = lock.NewMutex(newSession(c), "ledger").TryLock(ctx)
	fmt.Println("the other is locked out:", errors.Is(err, lock.ErrLocked))

	work := held.Context() // canceled in time if the lock is lost
	r, err := c.Txn(work, store.Txn{
		If:   []store.Compare{held.Condition()},
		Then: []store.Op{store.Put{Key: "balance", Value: []byte("17")}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("written:", r.Succeeded)
	fmt.Println("held up to the end:", held.Release(ctx) == nil)
	// Output:
	// the other is locked out: true
	// written: true
	// held up to the end: true
}

// The context passed to the function ends when the lock does.
func ExampleMutex_Do() {
	c, stop := inprocess.Client()
	defer stop()
	m := lock.NewMutex(newSession(c), "nightly")
	err := m.Do(context.Background(), func(ctx context.Context, held *lock.Held) error {
		fmt.Println("has a token:", held.Token() > 0, ctx.Err())
		return nil
	})
	fmt.Println(err)
	// Output:
	// has a token: true <nil>
	// <nil>
}

// Readers share a lock; a writer holds it alone.
func ExampleRWMutex() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	m := lock.NewRWMutex(newSession(c), "config")
	one, err := m.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	two, err := m.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = lock.NewRWMutex(newSession(c), "config").LockWithin(ctx, time.Millisecond)
	fmt.Println("a writer is locked out:", errors.Is(err, lock.ErrLocked))
	fmt.Println(one.Release(ctx), two.Release(ctx))
	// Output:
	// a writer is locked out: true
	// <nil> <nil>
}

// At most two sessions can use the printer at the same time.
func ExampleSemaphore() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	printer := lock.NewSemaphore(newSession(c), "printer", 2)
	for i := range 3 {
		_, err := printer.TryAcquire(ctx)
		fmt.Println(i, errors.Is(err, lock.ErrLocked))
	}
	// Output:
	// 0 false
	// 1 false
	// 2 true
}

// One of several programs leads. It hands over its role before it stops.
func ExampleElection() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	first := lock.NewElection(c, "scheduler")
	lead, err := first.Campaign(ctx, newSession(c), lock.Candidate{ID: "a", Value: []byte("10.0.0.1")})
	if err != nil {
		log.Fatal(err)
	}
	handed := make(chan error, 1)
	go func() { // hands over as soon as b is a candidate
		for {
			err := lead.HandOver(ctx, "b")
			if err == nil || lead.Err() != nil {
				handed <- err
				return
			}
		}
	}()
	second := lock.NewElection(c, "scheduler")
	b := lock.Candidate{ID: "b", Value: []byte("10.0.0.2")}
	err = second.Lead(ctx, newSession(c), b, func(ctx context.Context, l *lock.Leading) error {
		now, err := second.Leader(ctx)
		fmt.Printf("%s leads, with a larger token: %v\n", now.Value, l.Token() > lead.Token())
		return err
	})
	fmt.Println(err, <-handed)
	// Output:
	// 10.0.0.2 leads, with a larger token: true
	// <nil> <nil>
}

// An observer is notified of each new leader and when there is no leader.
func ExampleElection_Observe() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	campaign := func() {
		e := lock.NewElection(c, "primary")
		lead, err := e.Campaign(ctx, newSession(c), lock.Candidate{Value: []byte("host-1")})
		if err != nil {
			log.Fatal(err)
		}
		if err := lead.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	changes := 0
	for leader, err := range lock.NewElection(c, "primary").Observe(ctx) {
		switch {
		case err != nil:
			log.Fatal(err)
		case leader.None():
			fmt.Println("nobody")
		default:
			fmt.Println(string(leader.Value))
		}
		if changes++; changes == 3 {
			break
		}
		if changes == 1 {
			campaign()
		}
	}
	// Output:
	// nobody
	// host-1
	// nobody
}

// A caller that finds a lock held can find out which lease holds it.
func ExampleMutex_TryLock() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	ann, bob := newSession(c), newSession(c)
	if _, err := lock.NewMutex(ann, "printer").Lock(ctx); err != nil {
		log.Fatal(err)
	}

	_, err := lock.NewMutex(bob, "printer").TryLock(ctx)
	var taken *client.TakenError
	if errors.As(err, &taken) {
		fmt.Println("ann has it:", taken.Holder.ID == ann.Lease().ID())
	}
	if err := ann.Release(ctx); err != nil { // releases all of her locks together
		log.Fatal(err)
	}
	held, err := lock.NewMutex(bob, "printer").TryLock(ctx)
	fmt.Println("bob has it:", err == nil && held.Err() == nil)
	// Output:
	// ann has it: true
	// bob has it: true
}
