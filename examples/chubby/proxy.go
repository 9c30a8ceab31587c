package main

import (
	"context"
	"errors"
	"fmt"
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

// keepAlive handles a client's request to open its session or keep it alive. It returns the minimum
// time for which the session remains valid.
func (p *proxy) keepAlive(
	ctx context.Context, name string,
) (time.Duration, *client.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[name]
	if s != nil && s.locks.Lease().Err() == nil && s.silence.Stop() {
		s.silence.Reset(ttl)
		return time.Until(s.locks.Lease().ValidUntil()), s.locks, nil
	}
	l, err := p.c.Grant(ctx, client.Grant{TTL: ttl, Owner: name})
	if err != nil {
		return 0, nil, err
	}
	p.sessions[name] = &proxied{l.Session(), time.AfterFunc(ttl, l.Close)}
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
	return lock.NewMutex(locks, lockName).LockWithin(ctx, ttl/4)
}

// lead acquires the lock and writes the session's name to the file, on condition that the session
// still has the lock. Meanwhile it keeps the session alive. It then reads the file through the
// proxy, whose cache must no longer contain the previous holder's name.
func (s *session) lead(ctx context.Context) (sequencer lease.Token, err error) {
	held, err := s.lock(ctx)
	for errors.Is(err, lock.ErrLocked) {
		held, err = s.lock(ctx)
	}
	if err != nil {
		return 0, err
	}
	r, err := s.proxy.c.Txn(ctx, store.Txn{
		If:   []store.Compare{held.Condition()},
		Then: []store.Op{store.Put{Key: file, Value: []byte(s.name)}},
	})
	if err != nil {
		return 0, err
	}
	kv, err := s.proxy.files.Get(ctx, file)
	if err != nil {
		return 0, err
	}
	if !r.Succeeded || string(kv.Value) != s.name {
		return 0, fmt.Errorf("%s acquired the lock, but the primary is %s", s.name, kv.Value)
	}
	return held.Token(), nil
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
