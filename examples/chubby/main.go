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
	"os/signal"
	"strings"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "members' client addresses")
	d := demo{log: log.New(os.Stdout, "", 0)}
	flag.DurationVar(&d.ttl, "ttl", 4*time.Second, "session lifetime without a keep-alive")
	flag.Parse()
	d.cluster.Endpoints = strings.Split(*endpoints, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := d.run(ctx); err != nil {
		log.Fatal(err)
	}
}

// These are the lock and the file that names its holder ("/ls/cell/primary" in Chubby).
const (
	lockName = "chubby/cell/primary/lock"
	file     = "chubby/cell/primary"
)

type demo struct {
	cluster client.Config
	ttl     time.Duration
	log     *log.Logger
}

func (d *demo) run(ctx context.Context) error {
	c, err := client.New(d.cluster)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := newProxy(ctx, c, d.ttl)
	if err != nil {
		return err
	}
	// Otherwise, writes would wait until the cache's lease expires.
	defer p.files.Close(context.WithoutCancel(ctx))
	first, second := &session{name: "first", proxy: p}, &session{name: "second", proxy: p}
	old, err := d.lead(ctx, first)
	if err != nil {
		return err
	}
	if err := d.show(ctx, p); err != nil {
		return err
	}
	d.log.Printf("%s stops renewing its session", first.name)
	next, err := d.lead(ctx, second)
	if err != nil {
		return err
	}
	if first.valid() {
		return errors.New("the lock was granted to another session while its holder was valid")
	}
	if err := d.show(ctx, p); err != nil {
		return err
	}
	// A file server receives a request from the new holder, and then one that the old holder sent.
	var s server
	if err := s.write(next); err != nil {
		return err
	}
	if err := s.write(old); !errors.Is(err, errSequencer) {
		return fmt.Errorf("the file server accepted an old sequencer: %v", err)
	}
	d.log.Printf("sequencer %d is rejected after %d", old, next)
	return nil
}

// lead acquires the lock for a session and writes the session's name to the file, on condition that
// the session still has the lock. Meanwhile it keeps the session alive. If the write fails, it
// starts over.
func (d *demo) lead(ctx context.Context, s *session) (sequencer lease.Token, err error) {
	for {
		held, err := s.lock(ctx)
		if err == nil {
			var r client.TxnResult
			r, err = s.proxy.c.Txn(ctx, store.Txn{
				If:   []store.Compare{held.Condition()},
				Then: []store.Op{store.Put{Key: file, Value: []byte(s.name)}},
			})
			if err == nil && r.Succeeded {
				d.log.Printf("%s holds the lock, sequencer %d", s.name, held.Token())
				return held.Token(), nil
			}
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if err != nil && !errors.Is(err, lock.ErrLocked) {
			d.log.Printf("%s is retrying: %v", s.name, err)
		}
	}
}

// show reads the file through the proxy.
func (d *demo) show(ctx context.Context, p *proxy) error {
	kv, err := p.files.Get(ctx, file)
	if err == nil {
		d.log.Printf("the primary is %s", kv.Value)
	}
	return err
}
