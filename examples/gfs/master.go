package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
)

// prefix is the prefix of the names of the chunks' leases.
const prefix = "gfs/"

// master decides which replica leads a chunk. It takes no part in writes and renews no leases.
type master struct {
	c       *client.Client
	ttl     time.Duration
	log     *log.Logger
	servers []*server

	watching sync.WaitGroup

	mu      sync.Mutex
	leads   map[string]*server // keyed by chunk
	changed chan struct{}      // closed and replaced whenever leads changes
}

// begin gives each chunk a primary, and a new primary whenever its lease ends.
func (m *master) begin(ctx context.Context, chunks int, fail context.CancelCauseFunc) error {
	events, err := m.c.LeaseEvents(ctx, leases.Watch{NamePrefix: prefix})
	if err != nil {
		return err
	}
	for i := range chunks {
		if err := m.assign(ctx, chunkName(i), i); err != nil {
			return err
		}
	}
	m.watching.Go(func() {
		defer events.Close()
		for {
			u, err := events.Next(ctx)
			for i, e := range u.Events {
				if err == nil && e.Kind == leases.Expired {
					err = m.assign(ctx, strings.TrimPrefix(e.Lease.Name, prefix), i)
				}
			}
			if err != nil {
				fail(err)
				return
			}
		}
	})
	return nil
}

// assign grants the lease of a chunk and makes one of the replicas resume it using its secret. From
// then on, that replica renews it.
func (m *master) assign(ctx context.Context, chunk string, first int) error {
	for i := range m.servers {
		s := m.servers[(first+i)%len(m.servers)]
		g, err := m.c.GrantOnly(ctx, client.Grant{
			TTL: m.ttl, Name: prefix + chunk, Owner: s.name, Resumable: true,
		})
		if errors.Is(err, client.ErrNameTaken) {
			return nil // the chunk already has a primary
		}
		if err != nil {
			return err
		}
		if err := s.lead(ctx, chunk, g.Secret); err == nil {
			m.log.Printf("%s leads %s", s.name, chunk)
			m.mu.Lock()
			m.leads[chunk] = s
			close(m.changed)
			m.changed = make(chan struct{})
			m.mu.Unlock()
			return nil
		}
		if err := m.c.Revoke(ctx, leases.Ref{ID: g.ID}); err != nil &&
			!errors.Is(err, client.ErrLeaseNotFound) {
			return err
		}
	}
	return fmt.Errorf("no server can lead %s", chunk)
}

func (m *master) primary(chunk string) *server {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leads[chunk]
}

// write acts as a client of the file system. It asks the master for the primary, and asks the
// primary to append a record. If that fails, it starts over, so a chunk may contain a record twice.
func (m *master) write(ctx context.Context, chunk, record string) error {
	for {
		m.mu.Lock()
		s, changed := m.leads[chunk], m.changed
		m.mu.Unlock()
		if s.write(chunk, record) == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
