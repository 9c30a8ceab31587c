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

// proxy keeps many clients' sessions alive over one stream to the cluster, and answers their reads.
// In production it would be a separate process.
type proxy struct {
	c     *client.Client
	ttl   time.Duration
	files *cache.Cache

	mu       sync.Mutex
	sessions map[string]*proxied
}

// proxied is the proxy's side of a client's session.
type proxied struct {
	locks *client.Session
	// silence ends the session if the client has sent nothing for a TTL.
	silence *time.Timer
}

func newProxy(ctx context.Context, c *client.Client, ttl time.Duration) (*proxy, error) {
	files, err := cache.Open(ctx, c, []store.KeyRange{{Key: file}}, cache.Options{})
	if err != nil {
		return nil, err
	}
	return &proxy{c: c, ttl: ttl, files: files, sessions: make(map[string]*proxied)}, nil
}

// keepAlive handles a client's request to open its session or keep it alive. It returns the minimum
// time for which the session remains valid.
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

// session is the client's side of a session, with the proxy's answers about it.
type session struct {
	name  string
	proxy *proxy
	until time.Time
}

// valid reports whether, by its own clock, the client can still rely on its session.
func (s *session) valid() bool { return time.Now().Before(s.until) }

// lock keeps the session alive and waits a limited time for the lock.
func (s *session) lock(ctx context.Context) (*lock.Held, error) {
	sent := time.Now()
	remaining, locks, err := s.proxy.keepAlive(ctx, s.name)
	if err != nil {
		return nil, err
	}
	s.until = sent.Add(remaining)
	return lock.NewMutex(locks, lockName).LockWithin(ctx, s.proxy.ttl/4)
}

var errSequencer = errors.New("the sequencer is older than the latest one seen")

// server is a file server that checks sequencers locally by remembering the highest one.
type server struct{ highest lease.Token }

// write is a request from the holder of a lock.
func (s *server) write(sequencer lease.Token) error {
	if sequencer < s.highest {
		return errSequencer
	}
	s.highest = sequencer
	return nil
}
