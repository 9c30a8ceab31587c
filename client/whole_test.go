package client_test

import (
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/cachelink"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/test/inprocess"
)

// TestWhole checks that the range of an empty prefix contains all keys, in every type of request.
func TestWhole(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		c, ctx := connect(t, client.Config{}, members...), ask(t)
		end := store.Prefix("").End
		w := must[*client.Watcher](t)(c.Watch(ctx, store.Watch{End: end}))
		defer w.Close()
		must[store.PutResult](t)(c.Put(ctx, store.Put{Key: "\x00"}))
		must[store.PutResult](t)(c.Put(ctx, store.Put{Key: "\xff"}))
		for n := 0; n < 2; {
			n += len(must[store.Update](t)(w.Next(ctx)).Events)
		}
		if r := must[store.RangeResult](t)(c.Range(ctx, store.Range{End: end})); r.Count != 2 {
			t.Errorf("range: %+v", r)
		}
		if r := must[store.RangeResult](t)(c.Range(ctx, store.Range{End: "a"})); r.Count != 1 {
			t.Errorf("range up to a key: %+v", r)
		}
		l := must[*client.Lease](t)(c.Grant(ctx, client.Grant{
			TTL: time.Minute,
		}.ForCache(cachelink.Internal{}, []keyrange.Range{{End: end}})))
		if err := l.Revoke(ctx); err != nil {
			t.Error(err)
		}
		r := must[client.TxnResult](t)(c.Txn(ctx, store.Txn{
			If:   []store.Compare{store.KeyRange{End: end}.Version(store.Equal, 1)},
			Then: []store.Op{store.Range{End: end}},
		}))
		if !r.Succeeded || len(r.Results[0].Range.KVs) != 2 {
			t.Errorf("txn: %+v", r)
		}
		if d := must[store.DeleteResult](t)(c.Delete(ctx, store.Delete{End: end})); d.Deleted != 2 {
			t.Errorf("delete: %+v", d)
		}
	})
}
