package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// A program that must run only once in the cluster holds a lease with a name while it works, and
// fences its writes. Suppose that the program is paused and resumes after another one has acquired
// the name. In that case its write has no effect.
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

	work := held.Context() // canceled early enough if the lease cannot be kept alive
	r, err := c.Txn(work, store.Txn{
		If:   []store.Compare{store.NameHeld("jobs/nightly", held.Token())},
		Then: []store.Op{store.Put{Key: "nightly/last", Value: []byte("done")}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("written:", r.Succeeded)

	// The name is available to the next program immediately.
	fmt.Println("revoked:", held.Revoke(ctx))
	fmt.Println("then:", held.Err())
	// Output:
	// written: true
	// revoked: <nil>
	// then: client: released
}

// A program that follows keys first reads them and then watches from the revision after the one it
// read. It does not miss any changes in between.
func ExampleWatcher() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	nodes := store.Prefix("nodes/")
	read, err := c.Range(ctx, nodes.Range())
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Put(ctx, store.Put{Key: "nodes/a", Value: []byte("10.0.0.1")}); err != nil {
		log.Fatal(err)
	}

	watch := nodes.Watch()
	watch.From = read.Revision + 1
	w, err := c.Watch(ctx, watch)
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	u, err := w.Next(ctx)
	if err != nil {
		log.Fatal(err) // if it is ErrCompacted, the program reads the keys again
	}
	for _, e := range u.Events {
		fmt.Printf("%s is %s\n", e.KV.Key, e.KV.Value)
	}
	// Output:
	// nodes/a is 10.0.0.1
}

// A program that stopped following leases can resume from the last event it received.
func ExampleLeaseWatcher() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	w, err := c.LeaseEvents(ctx, leases.Watch{Owner: "ann"})
	if err != nil {
		log.Fatal(err)
	}
	seen := w.Seq()
	w.Close()

	if _, err := c.Grant(ctx, client.Grant{TTL: 10 * time.Second, Owner: "ann"}); err != nil {
		log.Fatal(err)
	}
	w, err = c.LeaseEvents(ctx, leases.Watch{Owner: "ann", After: seen, Resume: true})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	u, err := w.Next(ctx)
	if err != nil {
		log.Fatal(err) // if it is ErrCompacted, the program lists the leases
	}
	fmt.Println("a lease of", u.Events[0].Lease.Owner, "was", u.Events[0].Kind)
	// Output:
	// a lease of ann was granted
}
