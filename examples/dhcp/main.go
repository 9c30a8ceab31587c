// Dhcp leases addresses to hosts through two servers, like DHCP (RFC 2131) with failover
// (draft-ietf-dhc-failover-12).
//
//	leasehold serve &
//	go run leasehold.dev/examples/dhcp
//
// A host's lease is a lease in the cluster, named after the address, so two hosts never have the
// same address. The servers are stateless: either one can renew any host's lease. Because two
// servers alone cannot agree, DHCP's failover protocol divides the free addresses between them, and
// limits how far one can extend leases without the other (MCLT). Here they ask the cluster instead.
// The crash of a server therefore affects no address, and no host has to wait.
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
	"sync/atomic"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/contrib/pool"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
)

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "members' client addresses")
	d := demo{log: log.New(os.Stdout, "", 0)}
	flag.IntVar(&d.hosts, "hosts", 5, "number of hosts that request an address")
	flag.DurationVar(&d.ttl, "ttl", 3*time.Second, "how long an address is leased")
	flag.Parse()
	d.cluster.Endpoints = strings.Split(*endpoints, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := d.run(ctx); err != nil {
		log.Fatal(err)
	}
}

// poolName names the address pool.
const poolName = "dhcp"

var addresses = []string{"10.0.0.10-10.0.0.99", "10.0.1.0/28"}

// server is a DHCP server. It does not keep leases alive. A lease lives only as long as its host
// renews it.
type server struct {
	name string
	c    *client.Client
	pool *pool.Pool
	ttl  time.Duration
	down atomic.Bool
}

var errDown = errors.New("the server does not respond")

// offer is a server's answer to a host. The host measures the TTL from before its request.
type offer struct {
	address string
	ref     leases.Ref
	ttl     time.Duration
}

// request leases an address to a host (DHCPREQUEST without an address). It prefers the host's
// current address, no matter which server leased it, then its previous one, then any other.
func (s *server) request(ctx context.Context, host string) (offer, error) {
	if s.down.Load() {
		return offer{}, errDown
	}
	has := leases.Filter{NamePrefix: poolName + "/held/", Owner: host}
	for l, err := range s.c.List(ctx, has) {
		if err != nil {
			return offer{}, err
		}
		o := offer{
			strings.TrimPrefix(l.Name, has.NamePrefix), leases.Ref{ID: l.ID, Token: l.Token}, l.TTL,
		}
		if !l.Delayed && s.renew(ctx, o) == nil {
			return o, nil
		}
	}
	loan, err := s.pool.Acquire(ctx, pool.Request{Owner: host, TTL: s.ttl})
	if err != nil {
		return offer{}, err
	}
	loan.Lease().Close() // the host renews the lease, not this process
	return offer{loan.ID(), loan.Lease().Ref(), s.ttl}, nil
}

// renew restores a lease's full TTL (DHCPREQUEST of a host with an address). The transaction goes
// through the log, so its result remains valid under any later leader.
func (s *server) renew(ctx context.Context, o offer) error {
	if s.down.Load() {
		return errDown
	}
	_, err := s.c.Txn(ctx, store.Txn{Then: []store.Op{o.ref.Renew()}})
	return err
}

// host is a host that uses its address until the lease expires on the host's own clock.
type host struct {
	name    string
	servers []*server
	offer   offer
	until   time.Time
}

// ask asks the servers in turn to renew the lease or, failing that, for an address.
func (h *host) ask(ctx context.Context) error {
	var errs []error
	for _, s := range h.servers {
		sent := time.Now()
		if h.offer.ref.ID != 0 && s.renew(ctx, h.offer) == nil {
			h.until = sent.Add(h.offer.ttl)
			return nil
		}
		o, err := s.request(ctx, h.name)
		if err == nil {
			h.offer, h.until = o, sent.Add(o.ttl)
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
	}
	return errors.Join(errs...)
}

type demo struct {
	cluster client.Config
	hosts   int
	ttl     time.Duration
	log     *log.Logger
}

func (d *demo) run(ctx context.Context) error {
	servers := make([]*server, 2)
	for i := range servers {
		c, err := client.New(d.cluster)
		if err != nil {
			return err
		}
		defer c.Close()
		p, err := pool.Create(ctx, c, poolName, pool.Spec{IDs: addresses})
		if err != nil {
			return err
		}
		servers[i] = &server{name: fmt.Sprintf("server-%d", i), c: c, pool: p, ttl: d.ttl}
	}
	hosts := make([]*host, d.hosts)
	for i := range hosts {
		// Half of the hosts prefer each server.
		order := []*server{servers[i%2], servers[1-i%2]}
		hosts[i] = &host{name: fmt.Sprintf("host-%d", i), servers: order}
		if err := hosts[i].ask(ctx); err != nil {
			return err
		}
		d.log.Printf("%s has %s", hosts[i].name, hosts[i].offer.address)
	}
	servers[0].down.Store(true)
	d.log.Printf("%s is down", servers[0].name)
	if err := d.live(ctx, hosts, 2*d.ttl); err != nil {
		return err
	}
	silent := hosts[0]
	d.log.Printf("%s stops renewing its lease", silent.name)
	if err := d.free(ctx, servers[1], silent.offer); err != nil {
		return err
	}
	if left := time.Until(silent.until); left > 0 {
		return fmt.Errorf("%s is free, but %s may still use it for %v",
			silent.offer.address, silent.name, left)
	}
	return d.live(ctx, hosts[1:], 0)
}

// live runs all hosts for some time. Each renews its lease when half of the TTL has passed (T1 in
// RFC 2131). No address may change or belong to two hosts.
func (d *demo) live(ctx context.Context, hosts []*host, span time.Duration) error {
	end := time.Now().Add(span)
	for {
		owners := make(map[string]string)
		for _, h := range hosts {
			before, lapsed := h.offer.address, time.Now().After(h.until)
			if err := h.ask(ctx); err != nil {
				return err
			}
			if h.offer.address != before && !lapsed {
				return fmt.Errorf("%s had %s, but now has %s", h.name, before, h.offer.address)
			}
			if other, taken := owners[h.offer.address]; taken {
				return fmt.Errorf("%s and %s both have %s", other, h.name, h.offer.address)
			}
			owners[h.offer.address] = h.name
		}
		if !time.Now().Before(end) {
			d.log.Printf("%d hosts have an address", len(hosts))
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d.ttl / 2):
		}
	}
}

// free waits until the cluster reports that a silent host's lease has expired.
func (d *demo) free(ctx context.Context, s *server, o offer) error {
	name := poolName + "/held/" + o.address
	events, err := s.c.LeaseEvents(ctx, leases.Watch{NamePrefix: name})
	if err != nil {
		return err
	}
	defer events.Close()
	for {
		valid, _, err := s.c.CheckLease(ctx, o.ref)
		if err != nil {
			return err
		}
		if !valid {
			d.log.Printf("%s is free again", o.address)
			return nil
		}
		if _, err := events.Next(ctx); err != nil {
			return err
		}
	}
}
