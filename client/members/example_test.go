package members_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client/members"
	"leasehold.dev/test/inprocess"
)

// A load balancer watches who serves. One server leaves, an operator removes the other.
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

	// What each server does; its program stops serving when m.Context() ends.
	register := func(id, address string) *members.Membership {
		m, err := web.Register(ctx, members.Registration{
			ID: id, Metadata: []byte(address), TTL: 10 * time.Second,
		})
		if err != nil {
			log.Fatal(err)
		}
		next()
		return m
	}
	ann, bob := register("ann", "10.0.0.1:80"), register("bob", "10.0.0.2:80")
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
	// bob at 10.0.0.2:80 revoked
}
