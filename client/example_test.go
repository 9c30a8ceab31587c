package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/test/inprocess"
)

// A program that must run only once in the cluster holds a name while it works, and fences
// what it writes: even if it is stopped at a bad moment and wakes up when the name is
// another's, the write does nothing.
func ExampleClient_Grant() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	held, err := c.Grant(ctx, client.Grant{
		TTL: 10 * time.Second, Name: "jobs/nightly", Owner: "host-1",
	})
	var taken *client.TakenError
	switch {
	case errors.As(err, &taken):
		log.Fatalf("%s does it", taken.Holder.Owner)
	case err != nil:
		log.Fatal(err)
	}

	work := held.Context() // ends in time if the lease cannot be kept
	r, err := c.Txn(work, client.Txn{
		If:   []client.Compare{client.NameHeld("jobs/nightly", held.Token())},
		Then: []client.Op{client.Put{Key: "nightly/last", Value: []byte("done")}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("written:", r.Succeeded)

	// The name is free at once for the next.
	fmt.Println("revoked:", held.Revoke(ctx))
	fmt.Println("then:", held.Err())
	// Output:
	// written: true
	// revoked: <nil>
	// then: client: the lease was revoked
}

// A watch tells why keys go: members that leave revoke their leases, and those that die are
// found out when theirs expire.
func ExampleClient_Watch() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	w, err := c.Watch(ctx, client.Prefix("up/").Watch())
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	for _, name := range []string{"ann", "bob"} {
		held, err := c.Grant(ctx, client.Grant{
			TTL: time.Second, Keys: []client.KV{{Key: "up/" + name}},
		})
		if err != nil {
			log.Fatal(err)
		}
		if name == "ann" {
			err = held.Revoke(ctx) // she leaves
		} else {
			held.Close() // nobody keeps it alive any more
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	gone := 0
	for u, err := range w.Updates(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range u.Events {
			if e.Delete {
				fmt.Println(e.KV.Key, e.Why)
				gone++
			} else {
				fmt.Println(e.KV.Key, "is up")
			}
		}
		if gone == 2 {
			break
		}
	}
	// Output:
	// up/ann is up
	// up/ann revoked
	// up/bob is up
	// up/bob expired
}

// A supervisor is told when a worker is gone, and before that, when it is not heard any more.
func ExampleClient_LeaseEvents() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	w, err := c.LeaseEvents(ctx, client.EventsOptions{
		NamePrefix: "workers/", ExpiringWithin: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()

	held, err := c.Grant(ctx, client.Grant{TTL: 2 * time.Second, Name: "workers/1", Owner: "ann"})
	if err != nil {
		log.Fatal(err)
	}
	held.Close() // nobody keeps it alive any more

	gone := false
	for u, err := range w.Updates(ctx) {
		if err != nil {
			log.Fatal(err) // if it is ErrCompacted, List says what there is
		}
		for _, e := range u.Events {
			fmt.Println(e.Lease.Name, "of", e.Lease.Owner, e.Kind)
			gone = e.Kind == client.LeaseExpired
		}
		if gone {
			break
		}
	}
	// Output:
	// workers/1 of ann granted
	// workers/1 of ann expiring
	// workers/1 of ann expired
}
