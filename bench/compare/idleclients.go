package compare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"leasehold.dev/client"
	"leasehold.dev/internal/load"
)

// idleClient is a complete Go client that keeps one lease alive.
type idleClient struct {
	close func() error
	lost  func() bool
	// renewed returns a time no earlier than when the last acknowledged renewal was requested.
	renewed func() time.Time
}

// idleClients is a set of idle clients.
type idleClients struct {
	env     *Env
	connect func(ctx context.Context, addrs []string, conf *tls.Config) (idleClient, error)
	list    []idleClient
	before  ownUse
	each    ownUse // cost of one client to this program
}

func newIdleClients(e *Env) *idleClients {
	c := &idleClients{env: e, connect: openOwnClient, list: make([]idleClient, e.IdleSessions)}
	if e.Server.Target.Name != "leasehold" {
		c.connect = openEtcdClient
	}
	return c
}

// runIdleClients opens the server's own clients, and also reports their cost to this program.
func runIdleClients(ctx context.Context, e *Env) (Result, error) {
	c := newIdleClients(e)
	c.before = ownState()
	r, err := e.measureIdle(ctx, idleTTL, c)
	r.More = append(r.More, Metric{"client: heap and stacks", c.each.memory, "bytes"},
		Metric{"client: goroutines", c.each.goroutines, "goroutines"})
	return r, err
}

// open implements idlers.
func (c *idleClients) open(ctx context.Context) error {
	addr, conf := c.env.Server.idleAddress()
	addrs := []string{addr}
	if conf != nil {
		addrs[0] = "https://" + addr
	} else {
		for _, m := range c.env.Server.members[1:] {
			addrs = append(addrs, m.endpoint)
		}
	}
	return load.Spread(ctx, idleOpeners, len(c.list), func(ctx context.Context, _, i int) (err error) {
		c.list[i], err = c.connect(ctx, addrs, conf)
		return err
	})
}

// live implements idlers. It does nothing, because the clients renew on their own.
func (c *idleClients) live(context.Context) {}

// check implements idlers.
func (c *idleClients) check() error {
	for i, x := range c.list {
		if x.lost() {
			return fmt.Errorf("bench: client %d has lost its lease", i)
		}
	}
	after, n := ownState(), float64(len(c.list))
	c.each.memory = (after.memory - c.before.memory) / n
	c.each.goroutines = (after.goroutines - c.before.goroutines) / n
	return nil
}

// close implements idlers.
func (c *idleClients) close() {
	for _, x := range c.list {
		if x.close != nil {
			_ = x.close()
		}
	}
}

// ownUse is the memory that this program uses.
type ownUse struct{ memory, goroutines float64 }

func ownState() ownUse {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return ownUse{float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())}
}

func openOwnClient(ctx context.Context, addrs []string, conf *tls.Config) (idleClient, error) {
	c, err := client.New(client.Config{Endpoints: addrs, TLS: conf})
	if err != nil {
		return idleClient{}, err
	}
	l, err := c.Grant(ctx, client.Grant{TTL: idleTTL})
	if err != nil {
		return idleClient{}, errors.Join(err, c.Close())
	}
	return idleClient{
		close: c.Close, lost: func() bool { return l.Err() != nil },
		renewed: func() time.Time { return l.ValidUntil().Add(-idleTTL) },
	}, nil
}

func openEtcdClient(ctx context.Context, addrs []string, conf *tls.Config) (idleClient, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs, TLS: conf, Logger: zap.NewNop()})
	if err != nil {
		return idleClient{}, err
	}
	g, err := c.Grant(ctx, int64(idleTTL/time.Second))
	if err != nil {
		return idleClient{}, errors.Join(err, c.Close())
	}
	alive, err := c.KeepAlive(c.Ctx(), g.ID)
	if err != nil {
		return idleClient{}, errors.Join(err, c.Close())
	}
	var last atomic.Pointer[time.Time]
	last.Store(new(time.Now()))
	ended := make(chan struct{})
	go func() {
		for range alive {
			last.Store(new(time.Now()))
		}
		close(ended) // the lease was lost, or the client was closed
	}()
	return idleClient{
		close: c.Close, renewed: func() time.Time { return *last.Load() },
		lost: func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		},
	}, nil
}

// stormLimit is the maximum duration of a storm.
const stormLimit = time.Minute

// runStorm kills the leader while leasehold clients are connected to it. It measures how long it
// takes until all leases have been renewed.
func runStorm(ctx context.Context, e *Env) (Result, error) {
	c := newIdleClients(e)
	defer c.close()
	if err := c.open(ctx); err != nil {
		return Result{}, err
	}
	r, err := e.Server.roles(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := sleepUntil(ctx, time.Now().Add(idleTTL/renewals)); err != nil {
		return Result{}, err
	}
	killed := time.Now()
	if err := r.leader.kill(); err != nil {
		return Result{}, err
	}
	var back sample
	lost := 0
	for left := slices.Clone(c.list); len(left) > 0; {
		if time.Since(killed) > stormLimit {
			return Result{}, fmt.Errorf("bench: %d clients are not back", len(left))
		}
		if err := sleepUntil(ctx, time.Now().Add(10*time.Millisecond)); err != nil {
			return Result{}, err
		}
		left = slices.DeleteFunc(left, func(x idleClient) bool {
			switch at := x.renewed(); {
			case x.lost():
				lost++
			case at.After(killed):
				back = append(back, time.Since(killed))
			default:
				return false
			}
			return true
		})
	}
	more := append([]Metric{{"clients", float64(len(c.list)), "clients"}},
		back.metrics("kill to a client's renewal")...)
	return Result{More: append(more, Metric{"leases lost", float64(lost), "leases"})},
		e.Server.revive(ctx, r.leader)
}
