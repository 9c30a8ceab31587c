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
	"leasehold.dev/lease"
	"leasehold.dev/test/inprocess"
)

// A lease is kept alive until the program ends it. The program can check at any time how long the
// lease remains valid.
func ExampleLease() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	held, err := c.Grant(ctx, client.Grant{TTL: 10 * time.Second, Grace: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Put(ctx, store.Put{Key: "up/me", Lease: held.ID()}); err != nil {
		log.Fatal(err)
	}
	changed := held.Changed() // call Changed before Err
	fmt.Println(held.Err(), time.Until(held.ValidUntil()) > 3*time.Second)
	if err := held.ChangeTTL(ctx, time.Minute); err != nil {
		log.Fatal(err)
	}
	fmt.Println(time.Until(held.ValidUntil()) > 50*time.Second, held.Valid())

	// Close lets the lease expire. Revoke ends it immediately and deletes its keys.
	if err := held.Revoke(ctx); err != nil {
		log.Fatal(err)
	}
	<-changed
	fmt.Println(held.Err(), context.Cause(held.Context()))
	_, err = c.Get(ctx, "up/me")
	fmt.Println(errors.Is(err, client.ErrKeyNotFound))
	// Output:
	// <nil> true
	// true true
	// client: released client: released
	// true
}

// A program that is being replaced by another one hands over its lease with its name and keys. No
// other program can acquire the lease in between, and the old token is fenced off.
func ExampleLease_HandOver() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	ctx := context.Background()
	connect := func() *client.Client {
		c, err := client.New(client.Config{Endpoints: []string{endpoint}})
		if err != nil {
			log.Fatal(err)
		}
		return c
	}
	old, young := connect(), connect()
	defer old.Close()
	defer young.Close()
	held, err := old.Grant(ctx, client.Grant{TTL: 10 * time.Second, Name: "primary", Owner: "old"})
	if err != nil {
		log.Fatal(err)
	}

	g, err := held.HandOverResumable(ctx, "young")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("old:", held.Err())
	// In the other process, which has received the secret:
	next, err := young.Resume(ctx, leases.Ref{Name: "primary"}, g.Secret, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(next.Info().Owner, "has a later token:", next.Token() > held.Token())

	// A resource that does not remember the tokens that it has seen asks the cluster instead.
	for _, token := range []lease.Token{held.Token(), next.Token()} {
		valid, _, err := young.CheckLease(ctx, leases.Ref{Name: "primary", Token: token})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("may write:", valid)
	}
	// Output:
	// old: client: the lease was handed over
	// young has a later token: true
	// may write: false
	// may write: true
}

// This transaction grants a lease and puts a key with it, but only if the key does not exist. The
// client then keeps the lease alive.
func ExampleClient_Keep() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	id := leases.NewID()
	r, err := c.Txn(ctx, store.Txn{
		If: []store.Compare{store.Key("primary").Missing()},
		Then: []store.Op{
			client.Grant{ID: id, TTL: 10 * time.Second, Owner: "a"},
			store.Put{Key: "primary", Value: []byte("a"), Lease: id},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if !r.Succeeded {
		log.Fatal("there is one already")
	}
	// its TTL is counted from before the transaction was sent
	held, err := c.Keep(r.Results[0].Grant, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("valid:", held.Valid())

	held.Close() // stop renewing the lease before a transaction revokes it
	r, err = c.Txn(ctx, store.Txn{Then: []store.Op{held.Ref().Revoke()}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("keys that went with it:", r.Results[0].Revoked)
	// Output:
	// valid: true
	// keys that went with it: 1
}
