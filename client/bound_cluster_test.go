package client_test

import (
	"errors"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
)

// bound puts keys with a TTL. Each key gets its own lease, which the client does not have to
// manage. The lease ends when the key is put again, is deleted or expires, and not before.
func bound(t *testing.T, c *client.Client) {
	ctx := ask(t)
	gone := func(l leases.Ref) {
		t.Helper()
		if _, err := c.Describe(ctx, l); !errors.Is(err, client.ErrLeaseNotFound) {
			t.Errorf("lease %d: %v", l.ID, err)
		}
	}
	leaseOf := func() leases.Ref {
		t.Helper()
		return leases.Ref{ID: must[store.KV](t)(c.Get(ctx, "t/k")).Lease}
	}
	put := store.Put{Key: "t/k", TTL: time.Hour}
	must[store.PutResult](t)(c.Put(ctx, put))
	first := leaseOf()
	info := must[leases.Info](t)(c.DescribeKeys(ctx, first))
	if !info.Bound || info.TTL != time.Hour || len(info.Keys) != 1 {
		t.Errorf("described %+v", info)
	}
	_, err := c.Put(ctx, store.Put{Key: "t/l", Lease: first.ID})
	if !errors.Is(err, client.ErrInvalid) {
		t.Errorf("another key on it: %v", err)
	}
	put.PrevKV = true
	r := must[client.TxnResult](t)(c.Txn(ctx, store.Txn{Then: []store.Op{put}}))
	if p := r.Results[0].Put.Prev; p == nil || p.Lease != first.ID {
		t.Errorf("put again: %+v", p)
	}
	gone(first)
	second := leaseOf()
	must[store.DeleteResult](t)(c.Delete(ctx, store.Delete{Key: "t/k"}))
	gone(second)
	for _, bad := range []store.Put{
		{TTL: -1},
		{TTL: time.Millisecond},
		{TTL: time.Hour, Lease: 1},
		{TTL: time.Hour, KeepLease: true},
	} {
		bad.Key = "t/k"
		if _, err := c.Put(ctx, bad); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	put.TTL = 200 * time.Millisecond
	before := time.Now()
	must[store.PutResult](t)(c.Put(ctx, put))
	eventually(t, "the key ends", func() bool {
		_, err := c.Get(ctx, "t/k")
		return errors.Is(err, client.ErrKeyNotFound)
	})
	if d := time.Since(before); d < put.TTL {
		t.Errorf("it ended after %v", d)
	}
}
