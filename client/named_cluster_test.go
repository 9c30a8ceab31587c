package client_test

import (
	"errors"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// named refers to a lease by name in puts, transactions, attachments and a revocation. A name
// refers to the lease that currently has it. With the token of another lease, it does not refer to
// any lease.
func named(t *testing.T, c *client.Client) {
	ctx := ask(t)
	l := must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute, Name: "named"}))
	by := leases.Ref{Name: "named"}
	own := leases.Ref{Name: "named", Token: l.Token()}
	old := leases.Ref{Name: "named", Token: l.Token() + 1000}
	must[store.PutResult](t)(c.Put(ctx, store.Put{Key: "named/a", LeaseName: by.Name}))
	must[store.PutResult](t)(c.Put(ctx, store.Put{
		Key: "named/b", Lease: l.ID(), LeaseToken: l.Token(),
	}))
	r := must[client.TxnResult](t)(c.Txn(ctx, store.Txn{Then: []store.Op{
		store.Put{Key: "named/c", LeaseName: own.Name, LeaseToken: own.Token}, own.Renew(),
	}}))
	if got := r.Results[1].Renew; got == nil || got.ID != l.ID() {
		t.Errorf("renewed %+v", got)
	}
	on := func(id lease.ID, keys ...string) {
		t.Helper()
		for _, k := range keys {
			if kv := must[store.KV](t)(c.Get(ctx, k)); kv.Lease != id {
				t.Errorf("%s is on lease %d, want %d", k, kv.Lease, id)
			}
		}
	}
	on(l.ID(), "named/a", "named/b", "named/c")
	if err := errors.Join(c.Detach(ctx, by, "named/a"), c.Detach(ctx, own, "named/b")); err != nil {
		t.Error(err)
	}
	on(0, "named/a", "named/b")
	if err := c.Attach(ctx, own, "named/a"); err != nil {
		t.Error(err)
	}
	on(l.ID(), "named/a")

	_, put := c.Put(ctx, store.Put{Key: "named/a", LeaseName: old.Name, LeaseToken: old.Token})
	_, unknown := c.Put(ctx, store.Put{Key: "named/a", LeaseName: "none"})
	_, renewed := c.Txn(ctx, store.Txn{Then: []store.Op{old.Renew()}})
	_, revoked := c.Txn(ctx, store.Txn{Then: []store.Op{old.Revoke()}})
	for what, err := range map[string]error{
		"put": put, "put by an unknown name": unknown, "renewal": renewed, "revocation": revoked,
		"attachment": c.Attach(ctx, old, "named/a"), "revoke": c.Revoke(ctx, old),
		"revoke by an unknown name": c.Revoke(ctx, leases.Ref{Name: "none"}),
		"revoke another's name":     c.Revoke(ctx, leases.Ref{ID: l.ID() ^ 1, Name: "named"}),
	} {
		if !errors.Is(err, client.ErrLeaseNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	err := c.Revoke(ctx, leases.Ref{Name: "none"}, by)
	if !errors.Is(err, client.ErrLeaseNotFound) {
		t.Errorf("of two, one of them unknown: %v", err)
	}
	if err := l.Err(); !errors.Is(err, client.ErrReleased) {
		t.Errorf("a lease that its own client has revoked by its name: %v", err)
	}
	if _, err := c.Get(ctx, "named/a"); !errors.Is(err, client.ErrKeyNotFound) {
		t.Errorf("its key: %v", err)
	}
}
