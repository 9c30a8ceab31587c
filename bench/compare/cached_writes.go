package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/load"
	"leasehold.dev/test/process"
)

const (
	// sharedKey is the key that all caches hold. readyKey signals that the other process holds it
	// too.
	sharedKey, readyKey = "shared/key", "ready/key"
	// deadTTL is the TTL of the cache in the process that is paused.
	deadTTL = 5 * time.Second
	// crowdTTL is the TTL of the live caches. It is long enough that none expires on a busy
	// machine.
	crowdTTL = 30 * time.Second
	// leastPuts is the minimum number of puts, which is enough for a 99th percentile.
	leastPuts = 100
)

// A crowd is a set of clients that hold a key. In leasehold these are caches. In etcd they are
// watchers of the key, and writes do not wait for them.
type crowd struct {
	caches []*cache.Cache

	watchers int
	left     atomic.Int64 // watchers that have not received the last put
	all      chan struct{}
}

// cacheWrites puts a key repeatedly through etcd's client. Before each put, it waits until every
// client in the crowd has the previous value.
func (e *Env) cacheWrites(ctx context.Context, f *figures) error {
	writer, endpoints, err := e.writer(ctx)
	if err != nil {
		return err
	}
	defer writer.Close()
	for _, n := range []int{0, 1, 100, 1000} {
		if err := e.putsBeside(ctx, writer, n, f); err != nil {
			return err
		}
	}
	if native(e.Sessions[0]) == nil {
		return nil
	}
	if err := e.putsBesideDead(ctx, writer, endpoints[0], f); err != nil {
		return fmt.Errorf("a dead holder: %w", err)
	}
	return nil
}

// writer returns a session of etcd's client that uses all members, and the members' endpoints.
func (e *Env) writer(ctx context.Context) (s Session, endpoints []string, err error) {
	if endpoints, err = e.Server.endpoints(ctx, ThroughAll); err != nil {
		return nil, nil, err
	}
	s, err = OpenEtcd(endpoints)
	return s, endpoints, err
}

// putsBeside measures puts to a key that n clients hold.
func (e *Env) putsBeside(ctx context.Context, writer Session, n int, f *figures) error {
	var h load.Histogram
	if err := e.timePuts(ctx, writer, n, &h); err != nil {
		return fmt.Errorf("%d holders: %w", n, err)
	}
	f.latencies(fmt.Sprintf("%d have the key", n), &h)
	return nil
}

func (e *Env) timePuts(ctx context.Context, writer Session, n int, h *load.Histogram) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	value := make([]byte, load.ValueSize)
	if err := writer.Put(ctx, sharedKey, value); err != nil {
		return err
	}
	c, err := e.gather(ctx, n)
	if err != nil {
		return err
	}
	began := time.Now()
	for i := 0; i < leastPuts || time.Since(began) < e.Duration; i++ {
		if err := c.again(ctx); err != nil {
			return err
		}
		sent := time.Now()
		if err := writer.Put(ctx, sharedKey, value); err != nil {
			return err
		}
		h.Add(time.Since(sent))
	}
	return closeCaches(ctx, c.caches)
}

// gather creates a crowd of n clients.
func (e *Env) gather(ctx context.Context, n int) (*crowd, error) {
	c := &crowd{all: make(chan struct{}, 1)}
	if n == 0 {
		return c, nil
	}
	if native(e.Sessions[0]) != nil {
		var err error
		c.caches, err = e.openCaches(ctx, n, store.KeyRange{Key: sharedKey}, crowdTTL)
		return c, err
	}
	c.watchers = n
	c.all <- struct{}{} // no put is pending yet
	c.left.Store(int64(n))
	for i := range n {
		s := e.Sessions[i%len(e.Sessions)].(etcdSession)
		w := s.c.Watch(ctx, sharedKey, clientv3.WithCreatedNotify())
		if r, ok := <-w; !ok || r.Err() != nil {
			return nil, errors.Join(r.Err(), ctx.Err(), errors.New("bench: watch not created"))
		}
		go c.follow(w)
	}
	return c, nil
}

// follow counts the events of a watcher until its context ends.
func (c *crowd) follow(w clientv3.WatchChan) {
	for r := range w {
		for range r.Events {
			if c.left.Add(-1) == 0 {
				c.left.Store(int64(c.watchers))
				c.all <- struct{}{}
			}
		}
	}
}

// again waits until every client in the crowd has the key again.
func (c *crowd) again(ctx context.Context) error {
	if c.watchers > 0 {
		select {
		case <-c.all:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if len(c.caches) == 0 {
		return nil
	}
	return load.Spread(ctx, min(64, len(c.caches)), len(c.caches),
		func(ctx context.Context, _, i int) error {
			for c.caches[i].Stats().Entries == 0 {
				if _, err := c.caches[i].Get(ctx, sharedKey); err != nil {
					return err
				}
				if err := c.caches[i].Err(); errors.Is(err, cache.ErrEnded) {
					return err // this cache would never have the key again
				}
			}
			return nil
		})
}

// putsBesideDead pauses a process that holds the key. It measures the write that waits for the
// process's lease to end, and the writes that follow.
func (e *Env) putsBesideDead(
	ctx context.Context, writer Session, endpoint string, f *figures,
) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := process.Start(exec.Command(self, "-hold-cache", endpoint),
		filepath.Join(e.Server.dir, "holder.log"), "")
	if err != nil {
		return err
	}
	defer func() {
		_ = p.Signal(syscall.SIGKILL) // the process may have exited
		<-p.Done()
	}()
	err = poll(ctx, 10*time.Second, func(ctx context.Context) error {
		r, err := writer.(etcdSession).c.Get(ctx, readyKey)
		if err == nil && len(r.Kvs) == 0 {
			err = errors.New("bench: the holder is not ready: " + p.Tail())
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err = poll(ctx, 10*time.Second, func(context.Context) error { return stopped(p.PID()) })
	if err != nil {
		return err
	}
	var first, next load.Histogram
	for i := range 1 + leastPuts {
		sent := time.Now()
		if err := writer.Put(ctx, sharedKey, make([]byte, load.ValueSize)); err != nil {
			return err
		}
		if i == 0 {
			first.Add(time.Since(sent))
		} else {
			next.Add(time.Since(sent))
		}
	}
	f.add("one is dead, the first write", load.Millis(first.Max()), "ms")
	f.latencies("one is dead, the next", &next)
	return nil
}

// stopped returns nil once all threads of a process have stopped. After the signal is sent, the
// process may keep answering for a while on a busy machine.
func stopped(pid int) error {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if _, rest, _ := cutLast(text, ") "); len(rest) == 0 || rest[0] != 'T' {
			return fmt.Errorf("bench: not stopped: %s", text)
		}
	}
	return nil
}

// HoldCache holds a key in a cache until the context ends. It runs in the process that is paused.
func HoldCache(ctx context.Context, endpoint string) error {
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		return err
	}
	defer c.Close()
	held, err := cache.Open(ctx, c, []store.KeyRange{{Key: sharedKey}}, cache.Options{TTL: deadTTL})
	if err != nil {
		return err
	}
	for held.Stats().Entries == 0 {
		if _, err := held.Get(ctx, sharedKey); err != nil {
			return err
		}
	}
	if _, err := c.Put(ctx, store.Put{Key: readyKey}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
