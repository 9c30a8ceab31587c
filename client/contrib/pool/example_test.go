package pool_test

import (
	"context"
	"fmt"
	"log"

	"leasehold.dev/client/contrib/pool"
	"leasehold.dev/test/inprocess"
)

// Each generator of unique IDs needs a number that no other generator has at the same time.
func ExamplePool() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	p, err := pool.Create(ctx, c, "generators", pool.Spec{First: 0, Last: 1023})
	if err != nil {
		log.Fatal(err)
	}
	one, err := p.Acquire(ctx, pool.Request{Owner: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	two, err := p.Acquire(ctx, pool.Request{Owner: "host-2"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the same:", one.ID() == two.ID())
	held, err := p.List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(held), "are held, by two:", held[0].Owner != held[1].Owner)
	// The program can generate IDs while one.Err() is nil.
	if err := one.Release(ctx); err != nil {
		log.Fatal(err)
	}
	again, err := p.Acquire(ctx, pool.Request{Owner: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the same as before:", again.ID() == one.ID(), again.Token() > one.Token())
	// Output:
	// the same: false
	// 2 are held, by two: true
	// the same as before: true true
}
