// Gfs gives a chunk of a file system a primary with a lease, like the Google File System
// (Ghemawat, Gobioff, Leung: The Google File System, SOSP 2003, section 3.1).
//
//	leasehold serve &
//	go run leasehold.dev/examples/gfs
//
// The master chooses which replica leads the chunk and grants the lease. The cluster times the
// lease, and the replica renews it without involving the master. The lease's fencing token is the
// chunk's version number. Replicas reject requests from a primary with an older version. A replica
// that missed a change of primary is stale, as its version shows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"leasehold.dev/client"
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
	chunk = "gfs/chunk" // the name of the chunk's lease
	ttl   = 3 * time.Second
)

// master decides which replica leads the chunk. It takes no part in writes and renews no leases.
type master struct {
	c       *client.Client
	servers []*server
	current *server // nil until this master has granted a lease
}

// primary returns the chunk's primary. If the chunk's lease has ended, it grants a new one and
// makes one of the replicas resume it using its secret. From then on, that replica renews it.
func (m *master) primary(ctx context.Context) (*server, error) {
	s := m.servers[slices.IndexFunc(m.servers, func(s *server) bool { return !s.cut })]
	g, err := m.c.GrantOnly(ctx, client.Grant{
		TTL: ttl, Name: chunk, Owner: s.name, Resumable: true,
	})
	if errors.Is(err, client.ErrNameTaken) {
		return m.current, nil // its lease has not ended, even if it is unreachable
	}
	if err != nil {
		return nil, err
	}
	m.current = s
	return s, s.lead(ctx, g.Secret)
}

// write acts as a client of the file system. It asks the master for the primary, and asks the
// primary to append a record. If that fails, it starts over, so the chunk may contain a record
// twice.
func (m *master) write(ctx context.Context, record string) error {
	for {
		s, err := m.primary(ctx)
		if err != nil {
			return err
		}
		if s != nil && s.write(record) == nil {
			return nil
		}
		time.Sleep(ttl / 10)
	}
}

func run(ctx context.Context, cluster client.Config, out *log.Logger) error {
	c, err := client.New(cluster)
	if err != nil {
		return err
	}
	defer c.Close()
	servers := make([]*server, 3)
	for i := range servers {
		servers[i] = &server{name: fmt.Sprintf("server-%d", i), c: c, replicas: servers}
	}
	m := &master{c: c, servers: servers}
	if err := m.write(ctx, "one"); err != nil {
		return err
	}
	old, until := m.current, m.current.lease.ValidUntil()
	out.Printf("%s leads with version %d and is cut off", old.name, old.version)
	old.cutOff()
	if err := m.write(ctx, "two"); err != nil {
		return err
	}
	if left := time.Until(until); left > 0 {
		return fmt.Errorf("%s leads, but the old lease is valid for %v", m.current.name, left)
	}
	out.Printf("%s leads with version %d", m.current.name, m.current.version)
	for _, s := range servers {
		if s == old {
			continue
		}
		// A request that the old primary sent before it was cut off arrives only now.
		late := func(s *server) { s.records = append(s.records, "late") }
		if err := s.change(old.version, late); !errors.Is(err, errOld) {
			return fmt.Errorf("%s accepted a request from the old primary: %v", s.name, err)
		}
		if !slices.Equal(s.records, []string{"one", "two"}) {
			return fmt.Errorf("%s has the records %q", s.name, s.records)
		}
	}
	out.Printf("a late request with version %d is rejected", old.version)
	return nil
}
