package e2e

import (
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
