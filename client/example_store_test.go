package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// A client is configured with all members and connects to the leader. Creating a client does not
// wait for a connection, but calls and the Connection method do.
func ExampleConfig() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	c, err := client.New(client.Config{
		Endpoints: []string{endpoint},
		// how long a lease that was not renewed in time can still recover
		Grace:  time.Second,
		Margin: 20 * time.Millisecond, // how long this program needs to stop
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	now, err := c.Connection(ctx)
	if err != nil {
		log.Fatal(err) // ErrUnavailable, with the reason why the last member was unreachable
	}
	fmt.Println("connected:", now.Endpoint == endpoint)
	// Output:
	// connected: true
}

// Two programs wait in a queue. The queue consists of the keys with a common prefix, each
// containing the ID of its owner's lease. Package lock builds locks and elections on such queues.
func ExampleTicket() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	enter := func(l *client.Lease) *client.Ticket {
		key := fmt.Sprintf("printer/%x", l.ID())
		_, ticket, err := c.Enter(ctx, store.Txn{
			If:   []store.Compare{store.Key(key).Missing()},
			Then: []store.Op{store.Put{Key: key, Lease: l.ID()}},
		}, store.Wait{Key: key, Prefix: "printer/"})
		if err != nil {
			log.Fatal(err)
		}
		return ticket // nil if the key already existed
	}
	grant := func() *client.Lease {
		l, err := c.Grant(ctx, client.Grant{TTL: 10 * time.Second})
		if err != nil {
			log.Fatal(err)
		}
		return l
	}
	ann, bob := grant(), grant()
	first, second := enter(ann), enter(bob)
	fmt.Println("ann:", first.Wait(ctx))
	if err := ann.Revoke(ctx); err != nil { // deletes her key as well
		log.Fatal(err)
	}
	fmt.Println("bob:", second.Wait(ctx))
	<-first.Context().Done()
	var gone *client.GoneError
	fmt.Println("ann's key:", errors.As(first.Err(), &gone), gone.Cause)

	// A waiter that still has its key leaves the queue and deletes the key with a single message.
	key := fmt.Sprintf("printer/%x", bob.ID())
	r, err := second.Leave(ctx, store.Txn{Then: []store.Op{store.Delete{Key: key}}})
	fmt.Println("bob leaves:", r.Succeeded, err)
	first.Close()
	// Output:
	// ann: <nil>
	// bob: <nil>
	// ann's key: true revoked
	// bob leaves: true <nil>
}
