package leases_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/test/inprocess"
)

// Leases can be listed by name, owner and label.
func ExampleFilter() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	for name, zone := range map[string]string{"db/1": "east", "db/2": "west", "db/3": "east"} {
		_, err := c.Grant(ctx, client.Grant{
			TTL: time.Minute, Name: name, Labels: map[string]string{"zone": zone},
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	east := leases.Filter{NamePrefix: "db/", Labels: map[string]string{"zone": "east"}}
	for l, err := range c.List(ctx, east) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(l.Name, l.TTL)
	}
	info, err := c.DescribeKeys(ctx, leases.Ref{Name: "db/2"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Name, info.Labels["zone"], info.KeyCount)
	// Output:
	// db/1 1m0s
	// db/3 1m0s
	// db/2 west 0
}

// A supervisor is notified when a worker stops renewing its lease, and again when the lease has
// expired.
func ExampleWatch() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	w, err := c.LeaseEvents(ctx, leases.Watch{
		NamePrefix: "workers/", ExpiringWithin: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()

	held, err := c.Grant(ctx, client.Grant{TTL: time.Second, Name: "workers/1", Owner: "ann"})
	if err != nil {
		log.Fatal(err)
	}
	held.Close() // the lease is not kept alive anymore

	gone := false
	for u, err := range w.Updates(ctx) {
		if err != nil {
			log.Fatal(err) // if it is ErrCompacted, List returns the current leases
		}
		for _, e := range u.Events {
			fmt.Println(e.Lease.Name, "of", e.Lease.Owner, e.Kind)
			gone = e.Kind == leases.Expired
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
