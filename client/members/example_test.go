package members_test

import (
	"context"
	"fmt"
	"log"

	"leasehold.dev/client"
	"leasehold.dev/client/members"
	"leasehold.dev/test/inprocess"
)

// A load balancer watches a group of servers. One server leaves, and an operator removes the other.
func ExampleGroup() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	web := members.New(c, "web")
	watch, err := web.Watch(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()
	next := func() {
		events, err := watch.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range events {
			fmt.Printf("%s at %s %v\n", e.Member.ID, e.Member.Metadata, e.Change)
		}
	}

	// Each server runs this function. It must stop serving when its session's context ends.
	serve := func(id, address string) *client.Session {
		s, err := c.Open(ctx, client.Grant{Owner: id})
		if err != nil {
			log.Fatal(err)
		}
		if _, err := web.Register(ctx, s, id, []byte(address)); err != nil {
			log.Fatal(err)
		}
		next()
		return s
	}
	ann, bob := serve("ann", "10.0.0.1:80"), serve("bob", "10.0.0.2:80")
	if err := ann.Release(ctx); err != nil {
		log.Fatal(err)
	}
	next()
	if err := c.Revoke(ctx, bob.Lease().Ref()); err != nil {
		log.Fatal(err)
	}
	next()
	// Output:
	// ann at 10.0.0.1:80 joined
	// bob at 10.0.0.2:80 joined
	// ann at 10.0.0.1:80 left
	// bob at 10.0.0.2:80 left
}
