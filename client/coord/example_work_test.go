package coord_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/coord"
	"leasehold.dev/test/inprocess"
)

// A load balancer watches who serves. One server leaves, another dies.
func ExampleGroup() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	web := coord.NewGroup(c, "web")
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
	register := func(id, address string) *coord.Membership {
		m, err := web.Register(ctx, coord.Registration{
			ID: id, Metadata: []byte(address), TTL: 3 * time.Second,
		})
		if err != nil {
			log.Fatal(err)
		}
		next()
		return m
	}
	ann, bob := register("ann", "10.0.0.1:80"), register("bob", "10.0.0.2:80")
	if err := ann.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	next()
	bob.Lease().Close() // as if its process had died
	next()
	// Output:
	// ann at 10.0.0.1:80 joined
	// bob at 10.0.0.2:80 joined
	// ann at 10.0.0.1:80 left
	// bob at 10.0.0.2:80 failed
}

// The classical example: one issuer of leases, three nodes, one of them the primary. It is
// shut down, and another follows, when its lease has ended. Then the issuer orders a switch.
func ExampleNodes() {
	c, stop := inprocess.Client()
	defer stop()
	ctx, end := context.WithCancel(context.Background())
	issuer := coord.NewNodes(c, "db")

	// What each node does. The context of lead ends when this node must not be the primary any
	// more: before another can be.
	leads := make(chan string)
	stopped := make(chan struct{})
	nodes := make(map[string]*coord.Node)
	for _, id := range []string{"a", "b", "c"} {
		n, err := issuer.Join(ctx, coord.NodeConfig{ID: id, TTL: 10 * time.Second})
		if err != nil {
			log.Fatal(err)
		}
		nodes[id] = n
		go func() {
			for n.Alive() && ctx.Err() == nil {
				_ = n.Lead(ctx, func(ctx context.Context, p *coord.Primacy) error {
					leads <- id
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}
			stopped <- struct{}{}
		}()
	}

	first := <-leads
	v, err := issuer.List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(v.Nodes), "nodes, the primary is known:", v.Primary == first)
	if err := nodes[first].Leave(ctx); err != nil {
		log.Fatal(err)
	}
	second := <-leads
	fmt.Println("another follows:", second != first)

	third := map[string]string{"ab": "c", "ba": "c", "ac": "b", "ca": "b"}[first+second]
	if third == "" {
		third = "a"
	}
	ordered := make(chan error, 1)
	go func() { ordered <- issuer.Switch(ctx, third) }()
	fmt.Println("switched as ordered:", <-leads == third, <-ordered)
	if v, err = issuer.List(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the first is", v.Node(first).State)
	end()
	for range nodes {
		<-stopped
	}
	// Output:
	// 3 nodes, the primary is known: true
	// another follows: true
	// switched as ordered: true <nil>
	// the first is down
}

// A worker writes its result together with the acknowledgement, so that the result is there
// once, although items may be worked on more than once. An item that fails comes back.
func ExampleQueue() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	q := coord.NewQueue(c, "mail", coord.QueueConfig{TTL: 10 * time.Second, MaxTries: 2})
	for _, to := range []string{"ann", "nobody", "bob"} {
		if _, err := q.Push(ctx, []byte(to), 0); err != nil {
			log.Fatal(err)
		}
	}
	err := q.Work(ctx, coord.Work{
		Idle:  true, // ends when there is nothing to do
		Delay: -1,
		Do: func(ctx context.Context, i *coord.Item) error {
			to := string(i.Payload())
			if to == "nobody" {
				return fmt.Errorf("try %d: no such person", i.Tries())
			}
			fmt.Println("to", to)
			return i.AckWith(ctx, client.Put{Key: "sent/" + to})
		},
		Failed: func(_ *coord.Item, err error) { fmt.Println(err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	dead, err := q.Dead(ctx, "", 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d dead, the first is %q\n", len(dead), dead[0].Payload)
	// Output:
	// to ann
	// try 1: no such person
	// try 2: no such person
	// to bob
	// 1 dead, the first is "nobody"
}

// Generators of unique IDs each need a number that no other has at the same time.
func ExamplePool() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	p, err := coord.CreatePool(ctx, c, "generators", coord.PoolSpec{First: 0, Last: 1023})
	if err != nil {
		log.Fatal(err)
	}
	one, err := p.Acquire(ctx, coord.PoolRequest{Owner: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	two, err := p.Acquire(ctx, coord.PoolRequest{Owner: "host-2"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the same:", one.ID() == two.ID())
	// The program makes IDs as long as one.Err() is nil.
	if err := one.Release(ctx); err != nil {
		log.Fatal(err)
	}
	again, err := p.Acquire(ctx, coord.PoolRequest{Owner: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the same as before:", again.ID() == one.ID(), again.Token() > one.Token())
	// Output:
	// the same: false
	// the same as before: true true
}
