// Kafka implements brokers, a controller, and partition leaders in the way that Kafka's controller
// does.
//
//	leasehold serve &
//	go run leasehold.dev/examples/kafka
//
// A broker is a member of a group as long as its lease lives (Kafka's broker session). One broker
// is elected as the controller. The fencing token of its election is the controller epoch. The
// controller assigns each partition a leader among the live brokers, using transactions that only
// the current controller can make. A controller that has been replaced without knowing it cannot
// change anything.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
)

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "members' client addresses")
	d := demo{log: log.New(os.Stdout, "", 0)}
	flag.IntVar(&d.brokers, "brokers", 3, "number of brokers")
	flag.IntVar(&d.partitions, "partitions", 6, "number of partitions")
	flag.DurationVar(&d.ttl, "ttl", 3*time.Second, "TTL of a broker's lease")
	flag.Parse()
	d.cluster.Endpoints = strings.Split(*endpoints, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := d.run(ctx); err != nil {
		log.Fatal(err)
	}
}

type demo struct {
	cluster             client.Config
	brokers, partitions int
	ttl                 time.Duration
	log                 *log.Logger
}

func (d *demo) run(ctx context.Context) error {
	c, err := client.New(d.cluster)
	if err != nil {
		return err
	}
	defer c.Close()
	brokers := make(map[string]*broker)
	defer func() {
		for _, b := range brokers {
			b.stop()
		}
	}()
	for i := range d.brokers {
		id := fmt.Sprintf("broker-%d", i)
		if brokers[id], err = d.start(ctx, id); err != nil {
			return err
		}
	}
	if err := d.settled(ctx, c, brokers); err != nil {
		return err
	}
	who, err := lock.NewElection(c, election).Leader(ctx)
	if err != nil {
		return err
	}
	controller := string(who.Value)
	if brokers[controller] == nil {
		return fmt.Errorf("the controller is %q, which is not a broker", controller)
	}
	d.log.Printf("stopping %s, the controller", controller)
	brokers[controller].stop()
	delete(brokers, controller)
	return d.settled(ctx, c, brokers)
}

// settled waits until one of the given brokers leads each partition.
func (d *demo) settled(ctx context.Context, c *client.Client, brokers map[string]*broker) error {
	end := store.Prefix(partitions).End
	for {
		r, err := c.Range(ctx, store.Range{Key: partitions, End: end})
		if err != nil {
			return err
		}
		led := 0
		for _, kv := range r.KVs {
			if brokers[leaderOf(kv.Value)] != nil {
				led++
			}
		}
		if led == d.partitions {
			for _, kv := range r.KVs {
				d.log.Printf("%s: %s", strings.TrimPrefix(kv.Key, partitions), kv.Value)
			}
			d.log.Printf("%d partitions are led by %d live brokers", led, len(brokers))
			return nil
		}
		w, err := c.WatchFrom(store.Watch{Key: partitions, End: end, From: r.Revision + 1})
		if err != nil {
			return err
		}
		_, err = w.Next(ctx)
		w.Close()
		if err != nil {
			return err
		}
	}
}
