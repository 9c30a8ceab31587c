// Chubby implements sessions, a lock with a sequencer, and a cached file like Chubby (Burrows: The
// Chubby lock service for loosely-coupled distributed systems, OSDI 2006), with a proxy.
//
//	leasehold serve &
//	go run leasehold.dev/examples/chubby
//
// Each client has a session, which is a lease. The proxy (section 3.1 of the paper) keeps it alive
// in the cluster as long as the client asks it to. All sessions of a proxy are renewed over one
// stream, with many renewals per message. The proxy makes no promises of its own. It returns the
// remaining time of the lease, which the client counts from before its request. A slow or crashed
// proxy can therefore only end a session early. The file is read from the proxy's coherent cache.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
)

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "members' client addresses")
	flag.Parse()
	cluster := client.Config{Endpoints: strings.Split(*endpoints, ",")}
	if err := run(context.Background(), cluster, log.New(os.Stdout, "", 0)); err != nil {
		log.Fatal(err)
	}
}

// The lock and the file that names its holder are "/ls/cell/primary" in Chubby.
const (
	lockName = "chubby/cell/primary/lock"
	file     = "chubby/cell/primary"
	ttl      = 4 * time.Second // session lifetime without a keep-alive
)

func run(ctx context.Context, cluster client.Config, out *log.Logger) error {
	c, err := client.New(cluster)
	if err != nil {
		return err
	}
	defer c.Close()
	files, err := cache.Open(ctx, c, []store.KeyRange{{Key: file}}, cache.Options{})
	if err != nil {
		return err
	}
	// Otherwise, writes would wait until the cache's lease expires.
	defer files.Close(context.WithoutCancel(ctx))
	p := &proxy{c: c, files: files, sessions: make(map[string]*proxied)}
	first, second := &session{name: "first", proxy: p}, &session{name: "second", proxy: p}
	old, err := first.lead(ctx)
	if err != nil {
		return err
	}
	out.Printf("the first client holds the lock, sequencer %d, and stops renewing its session", old)
	next, err := second.lead(ctx)
	if err != nil {
		return err
	}
	if first.valid() {
		return errors.New("the lock was granted to another session while its holder was valid")
	}
	out.Printf("the second client holds the lock, sequencer %d", next)
	// A file server receives a request from the new holder, and then one that the old holder sent.
	var s server
	if err := s.write(next); err != nil {
		return err
	}
	if err := s.write(old); !errors.Is(err, errSequencer) {
		return fmt.Errorf("the file server accepted an old sequencer: %v", err)
	}
	out.Printf("sequencer %d is rejected", old)
	return nil
}
