package client_test

import (
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/cachelink"
	"leasehold.dev/internal/keyrange"
)

// TestWhole: the range of the empty prefix has all keys, whatever it is asked for.
func TestWhole(t *testing.T) {
	t.Parallel()
	members := newCluster(t, 1)
	c, ctx := connect(t, client.Config{}, members...), ask(t)
	end := client.Prefix("").End
	w := must[*client.Watcher](t)(c.Watch(ctx, client.Watch{End: end}))
	defer w.Close()
	must[client.PutResult](t)(c.Put(ctx, client.Put{Key: "\x00"}))
	must[client.PutResult](t)(c.Put(ctx, client.Put{Key: "\xff"}))
	for n := 0; n < 2; {
		n += len(must[client.Update](t)(w.Next(ctx)).Events)
	}
	if r := must[client.RangeResult](t)(c.Range(ctx, client.Range{End: end})); r.Count != 2 {
		t.Errorf("range: %+v", r)
	}
	if r := must[client.RangeResult](t)(c.Range(ctx, client.Range{End: "a"})); r.Count != 1 {
		t.Errorf("range up to a key: %+v", r)
	}
	holds := cachelink.Get[*client.Client, *client.Lease, client.Grant, client.RangeResult]()
	l := must[*client.Lease](t)(holds.Grant(ctx, c, client.Grant{
		TTL: time.Minute,
	}, []keyrange.Range{{End: end}}))
	if err := l.Revoke(ctx); err != nil {
		t.Error(err)
	}
	r := must[client.TxnResult](t)(c.Txn(ctx, client.Txn{
		If:   []client.Compare{client.KeyRange{End: end}.Version(client.Equal, 1)},
		Then: []client.Op{client.Range{End: end}},
	}))
	if !r.Succeeded || len(r.Results[0].Range.KVs) != 2 {
		t.Errorf("txn: %+v", r)
	}
	if d := must[client.DeleteResult](t)(c.Delete(ctx, client.Delete{End: end})); d.Deleted != 2 {
		t.Errorf("delete: %+v", d)
	}
}
