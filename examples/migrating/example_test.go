// Package migrating contains the code of docs/migrating.md.
package migrating

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/members"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// Example_consul shows a session with a TTL and a lock delay, a lock, and a registration.
func Example_consul() {
	c, stop := inprocess.Client()
	defer stop()
	if err := consul(context.Background(), c); err != nil {
		log.Fatal(err)
	}
	// Output:
	// web-1 acquired the lock; the sequencer is greater than zero: true
	// web-2 found it locked: true
	// 1 member: web-1 at 10.0.0.7:80
	// web-2 acquired the lock, with a greater sequencer: true
}

func consul(ctx context.Context, c *client.Client) error {
	grant := client.Grant{TTL: 10 * time.Second, Owner: "web-1", LockDelay: 15 * time.Second}
	granted, err := c.Grant(ctx, grant)
	if err != nil {
		return err
	}
	session := granted.Session() // renewed by the client until Release
	held, err := lock.NewMutex(session, "service/web/leader").TryLock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("web-1 acquired the lock; the sequencer is greater than zero:", held.Token() > 0)
	web := members.New(c, "web")
	if _, err := web.Register(ctx, session, "web-1", []byte("10.0.0.7:80")); err != nil {
		return err
	}

	other, err := c.Open(ctx, client.Grant{TTL: 10 * time.Second, Owner: "web-2"})
	if err != nil {
		return err
	}
	mutex := lock.NewMutex(other, "service/web/leader")
	_, err = mutex.TryLock(ctx)
	fmt.Println("web-2 found it locked:", errors.Is(err, lock.ErrLocked))
	list, _, err := web.List(ctx)
	if err != nil {
		return err
	}
	for _, m := range list {
		fmt.Printf("%d member: %s at %s\n", len(list), m.ID, m.Metadata)
	}

	// There is no lock delay, because the holder gives up the lock.
	if err := session.Release(ctx); err != nil {
		return err
	}
	next, err := mutex.Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("web-2 acquired the lock, with a greater sequencer:", next.Token() > held.Token())
	return nil
}

// Example_zookeeper shows an ephemeral znode, a watch on its parent, and a leader selector.
func Example_zookeeper() {
	c, stop := inprocess.Client()
	defer stop()
	if err := zookeeper(context.Background(), c); err != nil {
		log.Fatal(err)
	}
	// Output:
	// created: /workers/a
	// worker a leads, its context has ended: false
	// deleted: /workers/a
}

func zookeeper(ctx context.Context, c *client.Client) error {
	workers := store.Prefix("/workers/")
	read, err := c.Range(ctx, workers.Range())
	if err != nil {
		return err
	}
	watch := workers.Watch()
	watch.From = read.Revision + 1 // no event is skipped; the watch is not one-shot
	w, err := c.Watch(ctx, watch)
	if err != nil {
		return err
	}
	defer w.Close()

	session, err := c.Open(ctx, client.Grant{TTL: 10 * time.Second})
	if err != nil {
		return err
	}
	_, err = c.Put(ctx, store.Put{ // an ephemeral znode
		Key: "/workers/a", Value: []byte("10.0.0.7"), Lease: session.Lease().ID(),
	})
	if err != nil {
		return err
	}
	if err := next(ctx, w); err != nil {
		return err
	}

	err = lock.NewElection(c, "/leader").Lead(ctx, session, lock.Candidate{ID: "a"},
		func(ctx context.Context, l *lock.Leading) error { // takeLeadership
			fmt.Println("worker a leads, its context has ended:", ctx.Err() != nil)
			return nil // returning gives up the lead
		})
	if err != nil {
		return err
	}
	if err := session.Release(ctx); err != nil { // like the end of a ZooKeeper session
		return err
	}
	return next(ctx, w)
}

func next(ctx context.Context, w *client.Watcher) error {
	batch, err := w.Next(ctx)
	for _, e := range batch.Events {
		what := "created"
		if e.Delete {
			what = "deleted"
		}
		fmt.Printf("%s: %s\n", what, e.KV.Key)
	}
	return err
}

// Example_redis shows a lock with a time limit, and a write that only its holder can make.
func Example_redis() {
	c, stop := inprocess.Client()
	defer stop()
	if err := redis(context.Background(), c); err != nil {
		log.Fatal(err)
	}
	// Output:
	// written by the holder: true
	// written after the release: false
}

func redis(ctx context.Context, c *client.Client) error {
	session, err := c.Open(ctx, client.Grant{TTL: 10 * time.Second}) // PX 10000
	if err != nil {
		return err
	}
	held, err := lock.NewMutex(session, "orders").TryLock(ctx) // SET orders <id> NX
	if errors.Is(err, lock.ErrLocked) {
		return nil // another process holds the lock
	}
	if err != nil {
		return err
	}
	write := store.Txn{
		If:   []store.Compare{held.Condition()}, // checked where the write is applied
		Then: []store.Op{store.Put{Key: "orders/last", Value: []byte("4711")}},
	}
	r, err := c.Txn(held.Context(), write) // the context ends before anyone else can get the lock
	if err != nil {
		return err
	}
	fmt.Println("written by the holder:", r.Succeeded)
	if err := held.Release(ctx); err != nil { // nil: the lock was held until now
		return err
	}
	r, err = c.Txn(ctx, write)
	if err != nil {
		return err
	}
	fmt.Println("written after the release:", r.Succeeded)
	return nil
}
