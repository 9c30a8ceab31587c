package cache_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// A service reads its configuration on every request as cheaply as from a variable, and sees every
// change as soon as it has been made.
func ExampleOpen() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	ctx := context.Background()
	service, operator := exampleClient(endpoint), exampleClient(endpoint)
	defer service.Close()
	defer operator.Close()

	config, err := cache.Open(ctx, service, []store.KeyRange{store.Prefix("config/")},
		cache.Options{Owner: "service-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer config.Close(ctx)

	limit := func() string {
		kv, err := config.Get(ctx, "config/limit")
		switch {
		case errors.Is(err, client.ErrKeyNotFound):
			return "none"
		case err != nil:
			log.Fatal(err)
		}
		return string(kv.Value)
	}
	for range 1000 { // only the first read goes to the cluster
		limit()
	}
	fmt.Println("limit:", limit())

	put := store.Put{Key: "config/limit", Value: []byte("100")}
	if _, err := operator.Put(ctx, put); err != nil {
		log.Fatal(err)
	}
	fmt.Println("limit:", limit())
	fmt.Println("read from the cluster:", config.Stats().Fills)
	// Output:
	// limit: none
	// limit: 100
	// read from the cluster: 2
}

// A range is read from memory. After a key has changed, only that key is read again.
func ExampleCache_Range() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	ctx := context.Background()
	c := exampleClient(endpoint)
	defer c.Close()
	routes := store.Prefix("routes/")
	cached, err := cache.Open(ctx, c, []store.KeyRange{routes}, cache.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer cached.Close(ctx)

	for i, host := range []string{"a", "b", "c"} {
		put := store.Put{Key: "routes/" + host, Value: fmt.Append(nil, i)}
		if _, err := c.Put(ctx, put); err != nil {
			log.Fatal(err)
		}
		for range 100 {
			r, err := cached.Range(ctx, routes)
			if err != nil {
				log.Fatal(err)
			}
			if len(r.KVs) != i+1 {
				log.Fatal("stale read")
			}
		}
	}
	fmt.Println("read from the cluster:", cached.Stats().Fills)
	// Output:
	// read from the cluster: 3
}

func exampleClient(endpoint string) *client.Client {
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// A dashboard shows the data that a follower has in memory. The data may be a few seconds old, and
// writes do not wait for the follower.
func ExampleFollow() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	if _, err := c.Put(ctx, store.Put{Key: "nodes/a", Value: []byte("10.0.0.1")}); err != nil {
		log.Fatal(err)
	}
	follower, err := cache.Follow(ctx, c, []store.KeyRange{store.Prefix("nodes/")},
		cache.FollowOptions{MaxAge: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer follower.Close()

	show := func(r cache.Reader) { // works with a cache as well
		kv, err := r.Get(ctx, "nodes/a")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(kv.Value))
	}
	show(follower)
	// Output:
	// 10.0.0.1
}
