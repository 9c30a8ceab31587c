// Quickstart is the program in docs/client.md. It registers a service, leads, locks, reads a
// configuration from memory, and works on a queue.
//
//	leasehold serve &
//	go run leasehold.dev/examples/quickstart -endpoint 127.0.0.1:2379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/members"
	"leasehold.dev/client/queue"
	"leasehold.dev/client/store"
)

var (
	endpoint           = flag.String("endpoint", "127.0.0.1:2379", "a member's client address")
	out      io.Writer = os.Stdout
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := dial(ctx, *endpoint); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

func dial(ctx context.Context, endpoint string) error {
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		return err
	}
	defer c.Close()
	return run(ctx, c)
}

func run(ctx context.Context, c *client.Client) error {
	for _, program := range []func(context.Context, *client.Client) error{
		register, elect, post, configure, work,
	} {
		if err := program(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// register lists this program in the group "web" while it is serving.
func register(ctx context.Context, c *client.Client) error {
	me := client.Grant{Owner: "host-1"}
	return c.Run(ctx, me, func(ctx context.Context, s *client.Session) error {
		_, err := members.New(c, "web").Register(ctx, s, "host-1", []byte("10.0.0.1:80"))
		if err != nil {
			return err
		}
		return serve(ctx, c)
	})
}

// serve serves until it has finished or ctx ends.
func serve(ctx context.Context, c *client.Client) error {
	list, _, err := members.New(c, "web").List(ctx)
	for _, m := range list {
		fmt.Fprintf(out, "%s serves at %s\n", m.ID, m.Metadata)
	}
	return err
}

// elect runs the scheduler while this program is the leader.
func elect(ctx context.Context, c *client.Client) error {
	election := lock.NewElection(c, "scheduler")
	me := lock.Candidate{ID: "host-1", Value: []byte("10.0.0.1:80")}
	return c.Run(ctx, client.Grant{}, func(ctx context.Context, s *client.Session) error {
		return election.Lead(ctx, s, me, func(ctx context.Context, lead *lock.Leading) error {
			leader, err := election.Leader(ctx)
			fmt.Fprintf(out, "the leader is at %s\n", leader.Value)
			return err
		})
	})
}

// post changes a balance under a lock.
func post(ctx context.Context, c *client.Client) error {
	return c.Run(ctx, client.Grant{}, func(ctx context.Context, s *client.Session) error {
		ledger := lock.NewMutex(s, "ledger")
		return ledger.Do(ctx, func(ctx context.Context, held *lock.Held) error {
			r, err := c.Txn(ctx, store.Txn{
				If:   []store.Compare{held.Condition()},
				Then: []store.Op{store.Put{Key: "balance", Value: []byte("17")}},
			})
			fmt.Fprintln(out, "posted under the lock:", r.Succeeded)
			return err
		})
	})
}

// configure reads a configuration from memory. The cached copy is never stale.
func configure(ctx context.Context, c *client.Client) error {
	config, err := cache.Open(ctx, c, []store.KeyRange{store.Prefix("config/")}, cache.Options{})
	if err != nil {
		return err
	}
	defer config.Close(ctx)
	if _, err := c.Put(ctx, store.Put{Key: "config/limit", Value: []byte("100")}); err != nil {
		return err
	}
	for range 1000 {
		if _, err := config.Get(ctx, "config/limit"); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "1000 reads queried the cluster", config.Stats().Fills, "times")
	return nil
}

// work pushes items to a queue and processes them.
func work(ctx context.Context, c *client.Client) error {
	mail := queue.New(c, "mail", queue.Config{Worker: "host-1"})
	if _, err := mail.Push(ctx, []byte("ann"), 0); err != nil {
		return err
	}
	return mail.Work(ctx, queue.Work{
		Idle: true, // return when there is nothing to do
		Do: func(ctx context.Context, item *queue.Item) error {
			fmt.Fprintf(out, "an email to %s\n", item.Payload())
			return nil // the item is acknowledged, and gone
		},
	})
}
