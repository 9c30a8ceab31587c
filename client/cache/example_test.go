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

// A service reads its configuration for each request it serves, as if it was in a variable,
// and acts on the new one from the moment that somebody has changed it.
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
	for range 1000 { // the first asks the cluster, the others do not
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

// All keys of a prefix, from memory. After a change of one of them only that one is read.
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
				log.Fatal("it is not what was written")
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

// A dashboard shows what a follower has in memory. That may be some seconds old, and no write
// waits for it.
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

	show := func(r cache.Reader) { // as well of a cache
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
