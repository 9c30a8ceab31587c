// Gfs gives each chunk of a file system a primary with a lease, like the Google File System
// (Ghemawat, Gobioff, Leung: The Google File System, SOSP 2003, section 3.1).
//
//	leasehold serve &
//	go run leasehold.dev/examples/gfs
//
// The master chooses which replica leads a chunk and grants the lease. The cluster times the lease,
// and the replica renews it without involving the master. The lease's fencing token is the chunk's
// version number. Replicas reject requests from a primary with an older version. A replica that
// missed a change of primary is stale, as its version shows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"leasehold.dev/client"
)

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "members' client addresses")
	d := demo{log: log.New(os.Stdout, "", 0)}
	flag.IntVar(&d.servers, "servers", 3, "number of chunk servers")
	flag.IntVar(&d.chunks, "chunks", 4, "number of chunks")
	flag.DurationVar(&d.ttl, "ttl", 3*time.Second, "TTL of a lease")
	flag.Parse()
	d.cluster.Endpoints = strings.Split(*endpoints, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := d.run(ctx); err != nil {
		log.Fatal(err)
	}
}

type demo struct {
	cluster         client.Config
	servers, chunks int
	ttl             time.Duration
	log             *log.Logger
}

func (d *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := client.New(d.cluster)
	if err != nil {
		return err
	}
	defer c.Close()
	m := &master{
		c: c, ttl: d.ttl, log: d.log,
		leads: make(map[string]*server), changed: make(chan struct{}),
	}
	for i := range d.servers {
		c, err := client.New(d.cluster)
		if err != nil {
			return err
		}
		defer c.Close()
		m.servers = append(m.servers, newServer(fmt.Sprintf("server-%d", i), c))
	}
	for _, s := range m.servers {
		s.others = slices.DeleteFunc(slices.Clone(m.servers), func(o *server) bool { return o == s })
	}
	defer func() {
		cancel(nil)
		m.watching.Wait()
	}()
	if err := m.begin(ctx, d.chunks, cancel); err != nil {
		return err
	}
	written := 0
	write := func() error {
		for i := range d.chunks {
			if err := m.write(ctx, chunkName(i), fmt.Sprintf("record %d", written)); err != nil {
				return err
			}
			written++
		}
		return nil
	}
	if err := write(); err != nil {
		return err
	}
	lost, version := m.primary(chunkName(0)).cutOff(chunkName(0))
	d.log.Printf("%s is cut off", lost.name)
	if err := write(); err != nil {
		return err
	}
	// A request that the lost primary sent before it was disconnected arrives only now.
	for _, s := range lost.others {
		if err := s.append(chunkName(0), version, "late"); !errors.Is(err, errOld) {
			return fmt.Errorf("%s accepted a request from an old primary: %v", s.name, err)
		}
	}
	d.log.Println("a late request from the old primary was rejected")
	return m.check(d.chunks, lost, written)
}

func chunkName(i int) string { return fmt.Sprintf("chunk-%d", i) }

// check compares the replicas.
func (m *master) check(chunks int, lost *server, written int) error {
	total := 0
	for i := range chunks {
		name := chunkName(i)
		want := m.primary(name).read(name)
		total += len(want)
		for _, s := range m.servers {
			if s != lost && !slices.Equal(s.read(name), want) {
				return fmt.Errorf("%s: %s has %q, but the primary has %q",
					name, s.name, s.read(name), want)
			}
		}
	}
	if total < written {
		return fmt.Errorf("found only %d of %d records", total, written)
	}
	m.log.Printf("all %d records are in all live replicas, in the same order", written)
	return nil
}
