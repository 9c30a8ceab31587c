// Niobe replicates a value with a primary that holds a lease from each of its secondaries, like
// Niobe (MacCormick, Thekkath, Jager, Roomp, Zhou, Peterson: Niobe: A practical replication
// protocol, ACM Transactions on Storage, 2008) and later PacificA.
//
//	leasehold serve &
//	go run leasehold.dev/examples/niobe
//
// The replicas grant leases to each other using only package lease: each secondary is the lessor of
// its primary. The cluster is used only when that fails. It stores the list of replicas and the
// primary under a single key that is changed by compare-and-swap. A secondary whose lease to the
// primary has expired makes itself the primary. A primary that misses a secondary's acknowledgment
// removes that secondary. Only one of these changes can succeed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"leasehold.dev/client"
)

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "members' client addresses")
	d := demo{log: log.New(os.Stdout, "", 0)}
	flag.IntVar(&d.replicas, "replicas", 3, "number of replicas")
	flag.DurationVar(&d.ttl, "ttl", time.Second, "TTL of a secondary's lease")
	flag.Parse()
	d.cluster.Endpoints = strings.Split(*endpoints, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := d.run(ctx); err != nil {
		log.Fatal(err)
	}
}

type demo struct {
	cluster  client.Config
	replicas int
	ttl      time.Duration
	log      *log.Logger
}

func (d *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := client.New(d.cluster)
	if err != nil {
		return err
	}
	defer c.Close()
	g := &group{c: c, ttl: d.ttl, replicas: make(map[string]*replica)}
	first := config{}
	for i := range d.replicas {
		r := newReplica(fmt.Sprintf("replica-%d", i), g)
		g.replicas[r.name] = r
		first.Replicas = append(first.Replicas, r.name)
	}
	if err := g.found(ctx, first); err != nil {
		return err
	}
	ended := make(chan struct{}, d.replicas)
	defer func() {
		cancel(nil)
		for range d.replicas {
			<-ended
		}
	}()
	for _, r := range g.replicas {
		go func() {
			if err := r.live(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
			ended <- struct{}{}
		}()
	}
	if err := d.use(ctx, g); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// use writes and reads, disconnects the primary, and continues with the next primary.
func (d *demo) use(ctx context.Context, g *group) error {
	old, err := g.serving(ctx, nil)
	if err != nil {
		return err
	}
	for old.write("one") != nil { // a secondary might not have granted its lease yet
		if old, err = g.serving(ctx, nil); err != nil {
			return err
		}
	}
	d.log.Printf("%s is the primary and has written a value", old.name)
	old.cutOff()
	next, err := g.serving(ctx, old)
	if err != nil {
		return err
	}
	if value, err := old.read(); err == nil {
		return fmt.Errorf("%s is the primary, but %s still returns %q", next.name, old.name, value)
	}
	value, err := next.read()
	for err != nil || value != "one" {
		if err == nil {
			return fmt.Errorf("%s has %q", next.name, value)
		}
		if next, err = g.serving(ctx, old); err != nil {
			return err
		}
		value, err = next.read()
	}
	d.log.Printf("%s is cut off and rejects reads; %s has its data", old.name, next.name)
	return nil
}
