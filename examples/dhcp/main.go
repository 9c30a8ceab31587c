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
	"strings"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/contrib/pool"
	"leasehold.dev/client/leases"
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

const (
	poolName = "dhcp"
	ttl      = 3 * time.Second
)

// server is a DHCP server. It does not keep leases alive. A lease lives only as long as its host
// renews it.
type server struct {
	c    *client.Client
	pool *pool.Pool
	down bool
}

var errDown = errors.New("the server does not respond")

// offer is a server's answer to a host. The host measures the TTL from before its request.
type offer struct {
	address string
	ref     leases.Ref
}

// request leases an address to a host (DHCPREQUEST without an address). It prefers the host's
// current address, no matter which server leased it, then its previous one, then any other.
func (s *server) request(ctx context.Context, host string) (offer, error) {
	if s.down {
		return offer{}, errDown
	}
	has := leases.Filter{NamePrefix: poolName + "/held/", Owner: host}
	for l, err := range s.c.List(ctx, has) {
		if err != nil {
			return offer{}, err
		}
		ref := leases.Ref{ID: l.ID, Token: l.Token}
		o := offer{strings.TrimPrefix(l.Name, has.NamePrefix), ref}
		if !l.Delayed && s.renew(ctx, o) == nil {
			return o, nil
		}
	}
	loan, err := s.pool.Acquire(ctx, pool.Request{Owner: host, TTL: ttl})
	if err != nil {
		return offer{}, err
	}
	loan.Lease().Close() // the host renews the lease, not this process
	return offer{loan.ID(), loan.Lease().Ref()}, nil
}

// renew restores a lease's full TTL (DHCPREQUEST of a host with an address). The transaction goes
// through the log, so its result remains valid under any later leader.
func (s *server) renew(ctx context.Context, o offer) error {
	if s.down {
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
	err := errDown
	for _, s := range h.servers {
		sent := time.Now()
		if h.offer.ref.ID != 0 && s.renew(ctx, h.offer) == nil {
			h.until = sent.Add(ttl)
			return nil
		}
		var o offer
		if o, err = s.request(ctx, h.name); err == nil {
			h.offer, h.until = o, sent.Add(ttl)
			return nil
		}
	}
	return err
}

func run(ctx context.Context, cluster client.Config, out *log.Logger) error {
	servers := make([]*server, 2)
	for i := range servers {
		c, err := client.New(cluster)
		if err != nil {
			return err
		}
		defer c.Close()
		p, err := pool.Create(ctx, c, poolName, pool.Spec{IDs: []string{"10.0.0.10-10.0.0.99"}})
		if err != nil {
			return err
		}
		servers[i] = &server{c: c, pool: p}
	}
	hosts := make([]*host, 4)
	for i := range hosts {
		// Half of the hosts prefer each server.
		order := []*server{servers[i%2], servers[1-i%2]}
		hosts[i] = &host{name: fmt.Sprintf("host-%d", i), servers: order}
		if err := hosts[i].ask(ctx); err != nil {
			return err
		}
		out.Printf("%s has %s", hosts[i].name, hosts[i].offer.address)
	}
	servers[0].down = true
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 10) {
		if err := renewDue(ctx, hosts); err != nil {
			return err
		}
	}
	out.Printf("a server is down, and all hosts have kept their addresses")
	silent, others := hosts[0], hosts[1:]
	for ; ; time.Sleep(ttl / 10) {
		if err := renewDue(ctx, others); err != nil {
			return err
		}
		valid, _, err := servers[1].c.CheckLease(ctx, silent.offer.ref)
		if err != nil {
			return err
		}
		if !valid {
			break
		}
	}
	if left := time.Until(silent.until); left > 0 {
		return fmt.Errorf("%s is free, but %s may still use it for %v",
			silent.offer.address, silent.name, left)
	}
	out.Printf("%s has stopped renewing, and %s is free again", silent.name, silent.offer.address)
	return nil
}

// renewDue renews each lease once half of its TTL has passed (T1 in RFC 2131). No address may
// change while its lease is valid, or belong to two hosts.
func renewDue(ctx context.Context, hosts []*host) error {
	owners := make(map[string]string)
	for _, h := range hosts {
		before, left := h.offer.address, time.Until(h.until)
		if left < ttl/2 {
			if err := h.ask(ctx); err != nil {
				return err
			}
		}
		if h.offer.address != before && left > 0 {
			return fmt.Errorf("%s had %s, but now has %s", h.name, before, h.offer.address)
		}
		if other, taken := owners[h.offer.address]; taken {
			return fmt.Errorf("%s and %s both have %s", other, h.name, h.offer.address)
		}
		owners[h.offer.address] = h.name
	}
	return nil
}
