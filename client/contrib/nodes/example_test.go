package nodes_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client/contrib/nodes"
	"leasehold.dev/test/inprocess"
)

// This is the classic example: a lease issuer and three nodes, with one primary. When the primary
// shuts down, another node takes over once its lease has ended. Finally, the issuer orders a switch.
func ExampleSet() {
	c, stop := inprocess.Client()
	defer stop()
	ctx, end := context.WithCancel(context.Background())
	issuer := nodes.New(c, "db")

	// Every node runs the same code. The context of lead ends when this node must stop being the
	// primary, which is before another node can become the primary.
	leads := make(chan string)
	stopped := make(chan struct{})
	all := make(map[string]*nodes.Node)
	for _, id := range []string{"a", "b", "c"} {
		n, err := issuer.Join(ctx, nodes.Config{ID: id, TTL: 10 * time.Second})
		if err != nil {
			log.Fatal(err)
		}
		all[id] = n
		go func() {
			for n.Err() == nil && ctx.Err() == nil {
				_ = n.Lead(ctx, func(ctx context.Context, p *nodes.Primacy) error {
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
	if err := all[first].Release(ctx); err != nil {
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
	for range all {
		<-stopped
	}
	// Output:
	// 3 nodes, the primary is known: true
	// another follows: true
	// switched as ordered: true <nil>
	// the first is down
}

// A watch reports the states of all nodes after each change.
func ExampleWatch() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	set := nodes.New(c, "db")
	if _, err := set.Join(ctx, nodes.Config{ID: "a", TTL: 10 * time.Second}); err != nil {
		log.Fatal(err)
	}
	for v, err := range set.Watch().Views(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if v.Node("a").State == nodes.Alive {
			fmt.Println("a is up")
			break
		}
	}
	// Output:
	// a is up
}
