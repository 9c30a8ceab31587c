// Quickstart is the program of docs/quickstart.md: a lock, an election, a configuration that is
// read from memory, and a queue.
//
//	leasehold serve &
//	go run leasehold.dev/examples/quickstart -endpoint 127.0.0.1:2379
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/queue"
	"leasehold.dev/client/store"
)

func main() {
	endpoint := flag.String("endpoint", "127.0.0.1:2379", "a member's client address")
	flag.Parse()
	if err := run(context.Background(), *endpoint, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, endpoint string, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		return err
	}
	defer c.Close()

	held, err := c.Grant(ctx, client.Grant{TTL: 10 * time.Second, Owner: "host-1"})
	if err != nil {
		return err
	}
	defer held.Revoke(ctx)
	session := lock.NewSession(c, held)

	if err := locked(ctx, session, out); err != nil {
		return err
	}
	if err := elected(ctx, c, session, out); err != nil {
		return err
	}
	if err := cached(ctx, c, out); err != nil {
		return err
	}
	return queued(ctx, c, out)
}

// locked does something that one program at a time may do.
func locked(ctx context.Context, session *lock.Session, out io.Writer) error {
	ledger, err := session.Mutex("ledger").Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "the ledger is locked, with a token:", ledger.Token() > 0)
	work(ledger)
	return ledger.Release(ctx)
}

// work does something as long as it may. All that rests on a lease is a client.Hold.
func work(h client.Hold) {
	select {
	case <-h.Context().Done(): // stop: soon another may hold it
	case <-time.After(time.Millisecond): // done
	}
}

// elected leads, and tells others where the leader is.
func elected(
	ctx context.Context, c *client.Client, session *lock.Session, out io.Writer,
) error {
	election := lock.NewElection(c, "scheduler")
	me := lock.Candidate{ID: "host-1", Value: []byte("10.0.0.1:80")}
	return election.Lead(ctx, session, me, func(ctx context.Context, lead *lock.Leading) error {
		leader, err := election.Leader(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "the leader is at %s\n", leader.Value)
		work(lead)
		return nil
	})
}

// cached reads a configuration from memory, and never an old one.
func cached(ctx context.Context, c *client.Client, out io.Writer) error {
	ranges := []store.KeyRange{store.Prefix("config/")}
	config, err := cache.Open(ctx, c, ranges, cache.Options{Owner: "host-1"})
	if err != nil {
		return err
	}
	defer config.Close(ctx)

	for _, limit := range []string{"100", "200"} {
		put := store.Put{Key: "config/limit", Value: []byte(limit)}
		if _, err := c.Put(ctx, put); err != nil {
			return err
		}
		for range 1000 {
			kv, _, err := config.Get(ctx, "config/limit")
			if err != nil {
				return err
			}
			if string(kv.Value) != limit {
				return fmt.Errorf("read an old limit: %s", kv.Value)
			}
		}
	}
	fmt.Fprintln(out, "2000 reads asked the cluster", config.Stats().Fills, "times")
	return nil
}

// queued pushes work and does it.
func queued(ctx context.Context, c *client.Client, out io.Writer) error {
	mail := queue.New(c, "mail", queue.Config{TTL: 10 * time.Second, Worker: "host-1"})
	for _, to := range []string{"ann", "bob"} {
		if _, err := mail.Push(ctx, []byte(to), 0); err != nil {
			return err
		}
	}
	return mail.Work(ctx, queue.Work{
		Idle: true, // return when there is nothing to do
		Do: func(ctx context.Context, item *queue.Item) error {
			fmt.Fprintf(out, "a mail to %s\n", item.Payload())
			return nil // the item is acknowledged, and gone
		},
	})
}
