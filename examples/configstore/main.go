// Configstore is a configuration store with a thousand readers, as an example for package
// client/cache. Each reader is a separate client that repeatedly reads the entire configuration
// from its own memory while it is being changed. No reader ever reads a configuration older than
// the last acknowledged one.
//
//	leasehold dev &
//	go run leasehold.dev/examples/configstore -endpoints 127.0.0.1:2379
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
)

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "members' client addresses")
	var d demo
	flag.IntVar(&d.readers, "readers", 1000, "how many programs read the configuration")
	flag.IntVar(&d.changes, "changes", 20, "how many times to change the configuration")
	flag.DurationVar(&d.pause, "pause", 250*time.Millisecond, "time between changes")
	flag.Parse()
	d.cluster.Endpoints, d.out = strings.Split(*endpoints, ","), os.Stdout
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := d.run(ctx); err != nil {
		log.Fatal(err)
	}
}

// prefix is the prefix of the configuration's keys. All keys have the same value, the number of the
// last change, so readers can detect partial or outdated configurations.
const (
	prefix = "configstore/"
	keys   = 20
)

// opening is the number of readers that start at the same time. In a real cluster, programs do not
// all start at the same time. A reader that waits too long for CPU time would lose its lease before
// it starts.
const opening = 32

// work is the interval at which a reader performs ten reads.
const work = 10 * time.Millisecond

type demo struct {
	cluster          client.Config
	readers, changes int
	pause            time.Duration
	out              io.Writer

	acknowledged atomic.Int64 // the last acknowledged change
	reads        atomic.Int64
	fills        atomic.Uint64
}

func (d *demo) run(ctx context.Context) error {
	operator, err := client.New(d.cluster)
	if err != nil {
		return err
	}
	defer operator.Close()
	// Without a deadline, change would wait for a member indefinitely.
	first, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	if err := change(first, operator, 0); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	var begun, all sync.WaitGroup
	begun.Add(d.readers)
	slots := make(chan struct{}, opening)
	for range d.readers {
		slots <- struct{}{}
		begin := func() {
			<-slots
			begun.Done()
		}
		all.Go(func() {
			if err := d.read(ctx, sync.OnceFunc(begin), over); err != nil {
				cancel(err)
			}
		})
	}
	begun.Wait()
	begin := time.Now()
	fmt.Fprintf(d.out, "%d readers\n", d.readers)
	err = d.write(ctx, operator)
	close(over)
	all.Wait()
	if err != nil || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fmt.Fprintf(d.out, "%.0f reads a second, %d of %d from the cluster; none was stale\n",
		float64(d.reads.Load())/time.Since(begin).Seconds(), d.fills.Load(), d.reads.Load())
	return nil
}

// write repeatedly changes the configuration.
func (d *demo) write(ctx context.Context, c *client.Client) error {
	for n := 1; n <= d.changes; n++ {
		begin := time.Now()
		if err := change(ctx, c, n); err != nil {
			return err
		}
		d.acknowledged.Store(int64(n))
		fmt.Fprintf(d.out, "change %d: acknowledged after %v\n", n, time.Since(begin))
		select {
		case <-time.After(d.pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// change writes the entire configuration in one transaction.
func change(ctx context.Context, c *client.Client, n int) error {
	var txn store.Txn
	for i := range keys {
		txn.Then = append(txn.Then, store.Put{
			Key: fmt.Sprintf("%skey-%02d", prefix, i), Value: strconv.AppendInt(nil, int64(n), 10),
		})
	}
	_, err := c.Txn(ctx, txn)
	return err
}

// read runs one reader. It calls begun when the reader's cache is open, or has failed to open.
func (d *demo) read(ctx context.Context, begun func(), over <-chan struct{}) error {
	defer begun()
	c, err := client.New(d.cluster)
	if err != nil {
		return err
	}
	defer c.Close()
	// A reader that is disconnected for longer than the TTL reads from the cluster until its cache
	// has restarted.
	config, err := cache.Open(ctx, c, []store.KeyRange{store.Prefix(prefix)}, cache.Options{})
	if err != nil {
		return err
	}
	begun()
	defer func() {
		d.fills.Add(config.Stats().Fills)
		_ = config.Close(context.WithoutCancel(ctx)) // the cache's lease expires anyway
	}()
	requests := time.NewTicker(work)
	defer requests.Stop()
	for {
		select {
		case <-over:
			return nil
		case <-ctx.Done():
			return nil
		case <-requests.C:
		}
		for range 10 {
			if err := d.check(ctx, config); err != nil {
				return err
			}
		}
	}
}

// check reads and verifies the configuration once.
func (d *demo) check(ctx context.Context, config *cache.Cache) error {
	least := d.acknowledged.Load()
	p := store.Prefix(prefix)
	r, err := config.Range(ctx, p)
	if err != nil {
		return err
	}
	d.reads.Add(1)
	for _, kv := range r.KVs {
		n, err := strconv.ParseInt(string(kv.Value), 10, 64)
		if err != nil || n < least || string(kv.Value) != string(r.KVs[0].Value) {
			return fmt.Errorf("%s is %q, although change %d was acknowledged",
				kv.Key, kv.Value, least)
		}
	}
	return nil
}
