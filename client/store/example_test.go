package store_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// Keys are put, read and deleted individually or in ranges.
func ExamplePut() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	for _, p := range []store.Put{
		{Key: "nodes/a", Value: []byte("10.0.0.1")},
		{Key: "nodes/b", Value: []byte("10.0.0.2")},
		// deleted after the TTL unless it is put again
		{Key: "nodes/c", Value: []byte("10.0.0.3"), TTL: time.Minute},
	} {
		if _, err := c.Put(ctx, p); err != nil {
			log.Fatal(err)
		}
	}
	r, err := c.Put(ctx, store.Put{Key: "nodes/a", Value: []byte("10.0.0.9"), PrevKV: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("a was at %s\n", r.Prev.Value)
	nodes := store.Prefix("nodes/").Range()
	all, err := c.Range(ctx, nodes)
	if err != nil {
		log.Fatal(err)
	}
	for _, kv := range all.KVs {
		fmt.Printf("%s %s, version %d\n", kv.Key, kv.Value, kv.Version)
	}
	gone, err := c.Delete(ctx, store.Delete{Key: nodes.Key, End: nodes.End})
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

// A transaction changes a value only if it has not changed since it was read. Otherwise the same
// transaction returns the current value.
func ExampleTxn() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	if _, err := c.Put(ctx, store.Put{Key: "limit", Value: []byte("10")}); err != nil {
		log.Fatal(err)
	}
	for _, next := range []string{"20", "30"} {
		r, err := c.Txn(ctx, store.Txn{
			If:   []store.Compare{store.Key("limit").Value(store.Equal, []byte("10"))},
			Then: []store.Op{store.Put{Key: "limit", Value: []byte(next)}, store.DrawToken{}},
			Else: []store.Op{store.Range{Key: "limit"}},
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

// Conditions can refer to leases, and to all keys in a range.
func ExampleCompare() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	held, err := c.Grant(ctx, client.Grant{TTL: 10 * time.Second, Name: "jobs"})
	if err != nil {
		log.Fatal(err)
	}
	for _, is := range []store.Compare{
		store.Key("done/1").Missing(),
		store.Prefix("done/").Missing(), // no key in the range exists
		store.LeaseAlive(held.ID()),
		store.NameHeld("jobs", held.Token()),
		store.NameHeld("jobs", held.Token()+1).Not(),
		store.LeaseAlive(held.ID()).Not(),
	} {
		r, err := c.Txn(ctx, store.Txn{If: []store.Compare{is}})
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

// A watch reports why keys are deleted. Members that leave revoke their leases, and the leases of
// members that die expire.
func ExampleWatch() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	w, err := c.Watch(ctx, store.Prefix("up/").Watch())
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	for _, name := range []string{"ann", "bob"} {
		held, err := c.Grant(ctx, client.Grant{
			TTL: time.Second, Keys: []store.KV{{Key: "up/" + name}},
		})
		if err != nil {
			log.Fatal(err)
		}
		if name == "ann" {
			err = held.Revoke(ctx) // she leaves
		} else {
			held.Close() // the lease is not kept alive anymore
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
				fmt.Println(e.KV.Key, e.Cause)
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

// It can be the turn of up to two keys at a time. The others wait. Package lock builds semaphores
// on this.
func ExampleWait() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	held, err := c.Grant(ctx, client.Grant{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	key := fmt.Sprintf("printer/%x", held.ID())
	_, ticket, err := c.Enter(ctx, store.Txn{
		If:   []store.Compare{store.Key(key).Missing()},
		Then: []store.Op{store.Put{Key: key, Lease: held.ID()}},
	}, store.Wait{Key: key, Prefix: "printer/", Permits: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer ticket.Close()
	fmt.Println("its turn:", ticket.Wait(ctx) == nil)
	// Output:
	// its turn: true
}
