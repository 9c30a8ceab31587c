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

// A client names all members and goes to the one that leads. Nothing waits for a connection
// but the calls, and who wants to know of it.
func ExampleConfig() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	c, err := client.New(client.Config{
		Endpoints: []string{endpoint},
		Grace:     time.Second,           // in which a lease that is late may yet be saved
		Margin:    20 * time.Millisecond, // that this program needs to stop
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	now, err := c.Connection(ctx)
	if err != nil {
		log.Fatal(err) // ErrUnavailable, with why the last member could not be reached
	}
	fmt.Println("connected:", now.Endpoint == endpoint)
	// Output:
	// connected: true
}

// Keys are put, read and deleted, one by one or in ranges.
func ExampleClient_Put() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	for _, p := range []client.Put{
		{Key: "nodes/a", Value: []byte("10.0.0.1")},
		{Key: "nodes/b", Value: []byte("10.0.0.2")},
		{Key: "nodes/c", Value: []byte("10.0.0.3"), TTL: time.Minute}, // goes unless it is put again
	} {
		if _, err := c.Put(ctx, p); err != nil {
			log.Fatal(err)
		}
	}
	r, err := c.Put(ctx, client.Put{Key: "nodes/a", Value: []byte("10.0.0.9"), PrevKV: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("a was at %s\n", r.Prev.Value)
	nodes := client.Prefix("nodes/").Range()
	all, err := c.Range(ctx, nodes)
	if err != nil {
		log.Fatal(err)
	}
	for _, kv := range all.KVs {
		fmt.Printf("%s %s, version %d\n", kv.Key, kv.Value, kv.Version)
	}
	gone, err := c.Delete(ctx, client.Delete{Key: nodes.Key, End: nodes.End})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("deleted:", gone.Deleted)
	// Output:
	// a was at 10.0.0.1
	// nodes/a 10.0.0.9, version 2
	// nodes/b 10.0.0.2, version 1
	// nodes/c 10.0.0.3, version 1
	// deleted: 3
}

// A value is changed only if it is still what was read; if not, the same step tells what it is.
func ExampleTxn() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	if _, err := c.Put(ctx, client.Put{Key: "limit", Value: []byte("10")}); err != nil {
		log.Fatal(err)
	}
	for _, next := range []string{"20", "30"} {
		r, err := c.Txn(ctx, client.Txn{
			If:   []client.Compare{client.Key("limit").Value(client.Equal, []byte("10"))},
			Then: []client.Op{client.Put{Key: "limit", Value: []byte(next)}, client.DrawToken{}},
			Else: []client.Op{client.Range{Key: "limit"}},
		})
		switch {
		case err != nil:
			log.Fatal(err)
		case r.Succeeded:
			fmt.Println("changed to", next, "under a token:", r.Results[1].Token > 0)
		default:
			fmt.Printf("it is %s\n", r.Results[0].Range.KVs[0].Value)
		}
	}
	// Output:
	// changed to 20 under a token: true
	// it is 20
}

// Conditions may be about leases, and about all keys of a range.
func ExampleCompare() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	held, err := c.Grant(ctx, client.Grant{TTL: 10 * time.Second, Name: "jobs"})
	if err != nil {
		log.Fatal(err)
	}
	for _, is := range []client.Compare{
		client.Key("done/1").Missing(),
		client.Prefix("done/").Missing(), // none of them is there
		client.LeaseAlive(held.ID()),
		client.NameHeld("jobs", held.Token()),
		client.NameHeld("jobs", held.Token()+1).Not(),
		client.LeaseAlive(held.ID()).Not(),
	} {
		r, err := c.Txn(ctx, client.Txn{If: []client.Compare{is}})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Succeeded)
	}
	// Output:
	// true
	// true
	// true
	// true
	// true
	// false
}

// Two wait in a queue: the keys of a prefix, each with the ID of its owner's lease. Package lock
// makes locks and elections of this.
func ExampleTicket() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	enter := func(l *client.Lease) *client.Ticket {
		key := fmt.Sprintf("printer/%x", l.ID())
		_, ticket, err := c.Enter(ctx, client.Txn{
			If:   []client.Compare{client.Key(key).Missing()},
			Then: []client.Op{client.Put{Key: key, Lease: l.ID()}},
		}, client.Wait{Key: key, Prefix: "printer/"})
		if err != nil {
			log.Fatal(err)
		}
		return ticket // nil if the key was there
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
	if err := ann.Revoke(ctx); err != nil { // her key goes with her lease
		log.Fatal(err)
	}
	fmt.Println("bob:", second.Wait(ctx))
	<-first.Context().Done()
	var gone *client.GoneError
	fmt.Println("ann's key:", errors.As(first.Err(), &gone), gone.Why)

	// Who has his key still leaves the queue, and deletes it, by one message.
	key := fmt.Sprintf("printer/%x", bob.ID())
	r, err := second.Leave(ctx, client.Txn{Then: []client.Op{client.Delete{Key: key}}})
	fmt.Println("bob leaves:", r.Succeeded, err)
	first.Close()
	// Output:
	// ann: <nil>
	// bob: <nil>
	// ann's key: true revoked
	// bob leaves: true <nil>
}
