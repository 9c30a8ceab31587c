package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	leasehold "leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// counter counts by writing one key, without any condition: each write raises the key's
// version by one, and tells which one it found.
type counter struct {
	t      *testing.T
	client *leasehold.Client
	halt   atomic.Bool

	mu    sync.Mutex // guards what follows
	found []int64
}

// run counts until halt. A write that has no outcome ends the test.
func (c *counter) run(ctx context.Context) {
	for !c.halt.Load() {
		r, err := c.client.Txn(ctx, store.Txn{Then: []store.Op{
			store.Put{Key: "count", PrevKV: true},
		}})
		if err != nil {
			c.t.Errorf("a write has no outcome: %v", err)
			return
		}
		version := int64(0)
		if prev := r.Results[0].Put.Prev; prev != nil {
			version = prev.Version
		}
		c.mu.Lock()
		c.found = append(c.found, version)
		c.mu.Unlock()
	}
}

func (c *counter) counted() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.found)
}

// TestCount has a client count while the leader, or another member, is killed again and
// again. What was under way is sent again by the client, perhaps to another member, and
// each write must take effect once, with the one answer that belongs to it.
func TestCount(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	if *foreignFlag {
		t.Skip("it has another API")
	}
	const least = 1000
	c := newCluster(t, 3)
	var endpoints []string
	for _, m := range c.members {
		endpoints = append(endpoints, m.url)
	}
	cl, err := leasehold.New(leasehold.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	k := &counter{t: t, client: cl}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() { k.run(ctx) })
	}
	for i := range *killsFlag {
		m := c.leader()
		if i%2 == 1 {
			m = c.followers()[i/2%2] // the client may be with it
		}
		m.kill()
		c.writes(c.others(m)...)
		m.launch()
		c.serves()
	}
	harness.Eventually(t, "enough is counted", func() error {
		if n := k.counted(); n < least {
			return fmt.Errorf("%d writes", n)
		}
		return nil
	})
	k.halt.Store(true)
	workers.Wait()
	kv, err := cl.Get(ctx, "count")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(k.found)
	for i, v := range k.found {
		if v != int64(i) {
			t.Fatalf("write %d found version %d: it was done twice, or has another's answer", i, v)
		}
	}
	if t.Logf("%d writes", len(k.found)); kv.Version != int64(len(k.found)) {
		t.Errorf("version %d after %d writes", kv.Version, len(k.found))
	}
}
