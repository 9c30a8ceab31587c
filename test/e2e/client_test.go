package e2e

import (
	"context"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

func get(t *testing.T, c *clientv3.Client, key string, opts ...clientv3.OpOption) *mvccpb.KeyValue {
	t.Helper()
	r, err := c.Get(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) != 1 {
		t.Fatalf("%d pairs for %q", len(r.Kvs), key)
	}
	return r.Kvs[0]
}

// events spells n events of a watch.
func events(t *testing.T, w clientv3.WatchChan, n int) string {
	t.Helper()
	var out string
	for n > 0 {
		r := receive(t, "events", w)
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		for _, ev := range r.Events {
			if out != "" {
				out += ", "
			}
			out += fmt.Sprintf("%s %s=%s @%d", ev.Type, ev.Kv.Key, ev.Kv.Value, ev.Kv.ModRevision)
			if ev.PrevKv != nil {
				out += " after " + string(ev.PrevKv.Value)
			}
			n--
		}
	}
	return out
}

// TestClientSurvivesRestart kills the member under a client with a watch and a
// lease: the watch goes on from where it was (W1), the lease is still there.
func TestClientSurvivesRestart(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	ctx, c := t.Context(), m.client()
	lease, err := c.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	w := c.Watch(ctx, "r/", clientv3.WithPrefix())
	put := func(v string) {
		t.Helper()
		harness.Eventually(t, "put "+v, func() error {
			ctx, cancel := context.WithTimeout(ctx, patience/3)
			defer cancel()
			_, err := c.Put(ctx, "r/"+v, v, clientv3.WithLease(lease.ID))
			return err
		})
	}
	put("1")
	if got := events(t, w, 1); got != "PUT r/1=1 @2" {
		t.Errorf("before: %s", got)
	}
	m.kill()
	m.start()
	put("2")
	if got := events(t, w, 1); got != "PUT r/2=2 @3" {
		t.Errorf("after: %s", got)
	}
	if _, err := c.KeepAliveOnce(ctx, lease.ID); err != nil {
		t.Errorf("the lease after the restart: %v", err)
	}
}
