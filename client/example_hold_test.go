package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/members"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// Every resource that depends on a lease is a Hold. Code that runs while a program holds a resource
// can therefore be written once. This example uses it with a lock and with a group membership.
func ExampleHold() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	write := func(what string, h client.Hold) {
		_, err := c.Put(h.Context(), store.Put{Key: what, Value: fmt.Append(nil, h.Token())})
		fmt.Println(what, "written:", err == nil, "held:", h.Err() == nil)
		if err := h.Release(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println(what, "held:", h.Err() == nil)
	}

	s, err := c.Open(ctx, client.Grant{})
	if err != nil {
		log.Fatal(err)
	}
	held, err := lock.NewMutex(s, "ledger").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	write("lock", held)
	member, err := members.New(c, "crew").Register(ctx, s, "ann", nil)
	if err != nil {
		log.Fatal(err)
	}
	write("member", member)
	// Output:
	// lock written: true held: true
	// lock held: false
	// member written: true held: true
	// member held: false
}

// This example shows how the holder of a lease finds out how it was lost. Here, an operator revoked
// it.
func ExampleLostError() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	connect := func() *client.Client {
		c, err := client.New(client.Config{
			Endpoints:  []string{endpoint},
			RenewAfter: 0.01, // renews every lease ten times a second, to detect its loss quickly
		})
		if err != nil {
			log.Fatal(err)
		}
		return c
	}
	holder, operator := connect(), connect()
	defer holder.Close()
	defer operator.Close()
	ctx := context.Background()
	held, err := holder.Grant(ctx, client.Grant{TTL: 10 * time.Second, Name: "primary"})
	if err != nil {
		log.Fatal(err)
	}

	if err := operator.Revoke(ctx, leases.Ref{Name: "primary"}); err != nil {
		log.Fatal(err)
	}
	<-held.Context().Done()
	var lost *client.LostError
	if errors.As(held.Err(), &lost) {
		fmt.Println("the lease was", lost.Cause)
	}
	// Output:
	// the lease was revoked
}

// A client configured with the ID of its cluster rejects the members of any other cluster.
func ExampleConfig_clusterID() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}, ClusterID: 7})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = c.Get(context.Background(), "config")
	fmt.Println(errors.Is(err, client.ErrOtherCluster))
	// Output:
	// true
}
