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
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/members"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "members' client addresses")
	flag.Parse()
	cluster := client.Config{Endpoints: strings.Split(*endpoints, ",")}
	if err := run(context.Background(), cluster, log.New(os.Stdout, "", 0)); err != nil {
		log.Fatal(err)
	}
}

const (
	group      = "kafka/brokers"
	partitions = 6
	ttl        = 3 * time.Second // of a broker's lease
)

func run(ctx context.Context, cluster client.Config, out *log.Logger) error {
	c, err := client.New(cluster)
	if err != nil {
		return err
	}
	defer c.Close()
	var running sync.WaitGroup
	defer running.Wait()
	brokers, elected := make(map[string]*broker), make(chan *broker, 3)
	for i := range 3 {
		c, err := client.New(cluster)
		if err != nil {
			return err
		}
		defer c.Close()
		b := &broker{id: fmt.Sprintf("broker-%d", i), c: c, out: out, elected: elected}
		brokers[b.id] = b
		running.Go(func() { out.Printf("%s has stopped: %v", b.id, b.run(ctx)) })
	}
	if err := settled(ctx, c, brokers, out); err != nil {
		return err
	}
	controller := <-elected
	out.Printf("stopping %s, the controller", controller.id)
	controller.c.Close() // this revokes nothing, so to the cluster it looks like a crash
	delete(brokers, controller.id)
	return settled(ctx, c, brokers, out)
}

// settled waits until one of the given brokers leads each partition.
func settled(
	ctx context.Context, c *client.Client, brokers map[string]*broker, out *log.Logger,
) error {
	for i := range partitions {
		a, err := read(ctx, c, i)
		for ; err == nil && brokers[a.Leader] == nil; a, err = read(ctx, c, i) {
			time.Sleep(ttl / 10)
		}
		if err != nil {
			return err
		}
		out.Printf("partition %d is led by %s, epoch %d, controller epoch %d",
			i, a.Leader, a.Epoch, a.ControllerEpoch)
	}
	return nil
}

// key returns the key that stores the leader of a partition.
func key(partition int) string { return fmt.Sprintf("kafka/partitions/%d", partition) }

// assignment is the value of a partition's key. The epoch increases with each new leader, and the
// controller's epoch with each new controller.
type assignment struct {
	Leader          string      `json:"leader"`
	Epoch           int64       `json:"epoch"`
	ControllerEpoch lease.Token `json:"controllerEpoch"`
}

// read returns the assignment of a partition, or the zero value if it has none.
func read(ctx context.Context, c *client.Client, partition int) (a assignment, err error) {
	kv, err := c.Get(ctx, key(partition))
	if errors.Is(err, client.ErrKeyNotFound) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(kv.Value, &a)
}

// broker is a broker. In production it would be a separate process.
type broker struct {
	id      string
	c       *client.Client
	out     *log.Logger
	elected chan<- *broker // receives each controller
}

// run runs the broker until its lease ends. Its membership and its candidacy share that lease.
func (b *broker) run(ctx context.Context) error {
	s, err := b.c.Open(ctx, client.Grant{TTL: ttl, Owner: b.id})
	if err != nil {
		return err
	}
	defer s.Lease().Close() // in the cluster, it expires after its TTL
	// If the broker was restarted, Register waits until its previous lease has ended.
	m, err := members.New(b.c, group).Register(ctx, s, b.id, nil)
	if err != nil {
		return err
	}
	e := lock.NewElection(b.c, "kafka/controller")
	l, err := e.Campaign(m.Context(), s, lock.Candidate{ID: b.id})
	if err != nil {
		return err
	}
	return b.control(l.Context(), l)
}

// control acts as the controller. Whenever the group changes, it assigns a leader to each
// partition that no longer has one. It returns when this broker is no longer the controller.
func (b *broker) control(ctx context.Context, l *lock.Leading) error {
	b.out.Printf("%s is the controller, epoch %d", b.id, l.Token())
	b.elected <- b
	brokers := members.New(b.c, group)
	w, err := brokers.Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		if _, err := w.Next(ctx); err != nil {
			return err
		}
		live, _, err := brokers.List(ctx)
		if err != nil {
			return err
		}
		for i := range partitions {
			if err := b.assign(ctx, l, i, live); err != nil {
				return err
			}
		}
	}
}

// assign gives a partition another leader unless its leader is live. The condition of the
// transaction rejects a controller that has been replaced, even if it does not know it yet.
func (b *broker) assign(
	ctx context.Context, l *lock.Leading, partition int, live []members.Member,
) error {
	a, err := read(ctx, b.c, partition)
	leads := func(m members.Member) bool { return m.ID == a.Leader }
	if err != nil || len(live) == 0 || slices.ContainsFunc(live, leads) {
		return err
	}
	a = assignment{live[partition%len(live)].ID, a.Epoch + 1, l.Token()}
	value, err := json.Marshal(a)
	if err != nil {
		return err
	}
	r, err := b.c.Txn(ctx, store.Txn{
		If:   []store.Compare{l.Condition()},
		Then: []store.Op{store.Put{Key: key(partition), Value: value}},
	})
	if err == nil && !r.Succeeded {
		return errors.New("another broker is the controller")
	}
	return err
}
