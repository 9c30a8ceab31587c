package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// proxy keeps the sessions of many clients alive over one stream to the cluster, and answers their
// reads. In production it is a separate process.
type proxy struct {
	c     *client.Client
	ttl   time.Duration
	files *cache.Cache

	mu       sync.Mutex
	sessions map[string]*proxied
}

// proxied is a client's session at the proxy.
type proxied struct {
	locks *client.Session
	// silence ends the session of a client that has sent nothing for a TTL.
	silence *time.Timer
}

func newProxy(ctx context.Context, c *client.Client, ttl time.Duration) (*proxy, error) {
	files, err := cache.Open(ctx, c, []store.KeyRange{{Key: file}}, cache.Options{})
	if err != nil {
		return nil, err
	}
	return &proxy{c: c, ttl: ttl, files: files, sessions: make(map[string]*proxied)}, nil
}

// keepAlive handles a request of a client: it opens the client's session, or keeps it alive. It
// returns how long the session is valid at least.
func (p *proxy) keepAlive(
	ctx context.Context, name string,
) (time.Duration, *client.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[name]
	if s != nil && s.locks.Lease().Err() == nil && s.silence.Stop() {
		s.silence.Reset(p.ttl)
		return time.Until(s.locks.Lease().ValidUntil()), s.locks, nil
	}
	l, err := p.c.Grant(ctx, client.Grant{TTL: p.ttl, Owner: name})
	if err != nil {
		return 0, nil, err
	}
	p.sessions[name] = &proxied{l.Session(), time.AfterFunc(p.ttl, l.Close)}
	return time.Until(l.ValidUntil()), p.sessions[name].locks, nil
}

// session is a client of the proxy, with the answers of the proxy about its session.
type session struct {
	name  string
	proxy *proxy
	until time.Time
}

// valid reports whether the client may rely on its session, by its own clock.
func (s *session) valid() bool { return time.Now().Before(s.until) }

// lock keeps the session alive and waits for the lock, for a limited time.
func (s *session) lock(ctx context.Context) (*lock.Held, error) {
	sent := time.Now()
	remaining, locks, err := s.proxy.keepAlive(ctx, s.name)
	if err != nil {
		return nil, err
	}
	s.until = sent.Add(remaining)
	return lock.NewMutex(locks, lockName).LockWithin(ctx, s.proxy.ttl/4)
}

var errSequencer = errors.New("the sequencer is older than one seen before")

// server is a file server that checks sequencers locally: it remembers the highest one.
type server struct{ highest lease.Token }

// write is a request by the holder of a lock.
func (s *server) write(sequencer lease.Token) error {
	if sequencer < s.highest {
		return errSequencer
	}
	s.highest = sequencer
	return nil
}
