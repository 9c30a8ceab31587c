package e2e

import (
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
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
