package client_test

import (
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// grantedAgain checks that a repeated grant in a transaction is reported as existing and has its
// full TTL (T3).
func grantedAgain(t *testing.T, c *client.Client, id lease.ID) {
	r := must[client.TxnResult](t)(c.Txn(ask(t), store.Txn{Then: []store.Op{
		client.Grant{ID: id, TTL: time.Minute, RequestID: "l/r"},
		client.Grant{ID: leases.NewID(), TTL: time.Minute, RequestID: "l/s"},
	}}))
	for i, made := range r.Results {
		if g := made.Grant; g.Existed != (i == 0) || g.Remaining != time.Minute {
			t.Errorf("in a transaction %+v", g)
		}
	}
}

// pointed passes a transaction's operations as pointers and checks that each gives the same result
// as its value would.
func pointed(t *testing.T, c *client.Client) {
	id := leases.NewID()
	before := time.Now()
	r := must[client.TxnResult](t)(c.Txn(ask(t), store.Txn{Then: []store.Op{
		&client.Grant{ID: id, TTL: time.Minute},
		&store.Put{Key: "pointed", Lease: id, PrevKV: true},
		&store.Txn{Then: []store.Op{
			&store.Range{Key: "pointed"}, &store.DrawToken{}, store.Put{Key: "embedded"},
		}},
	}}))
	g, put, in := r.Results[0].Grant, r.Results[1].Put, r.Results[2].Txn
	if g == nil || g.ID != id || put == nil || in == nil || len(in.Results) != 3 {
		t.Fatalf("results %+v", r.Results)
	}
	if got := in.Results[0].Range; got == nil || len(got.KVs) != 1 || in.Results[1].Token == 0 ||
		in.Results[2].Put == nil {
		t.Errorf("results %+v", in.Results)
	}
	l := must[*client.Lease](t)(c.Keep(g, 0))
	if until := l.ValidUntil(); until.Before(before.Add(30 * time.Second)) {
		t.Errorf("it is valid until %v, granted at %v", until, before)
	}
	r = must[client.TxnResult](t)(c.Txn(ask(t), store.Txn{
		Then: []store.Op{l.Ref().Renew(), l.Ref().Revoke()},
	}))
	if r.Results[0].Renew == nil || r.Results[0].Renew.ID != id || r.Results[1].Revoked != 1 {
		t.Errorf("results %+v", r.Results)
	}
	read := must[client.TxnResult](t)(c.Txn(ask(t), store.Txn{Then: []store.Op{
		&store.Range{Key: "embedded"}, &store.Txn{Else: []store.Op{&store.Delete{Key: "x"}}},
	}}))
	if got := read.Results[0].Range; got == nil || len(got.KVs) != 1 {
		t.Errorf("results %+v", read.Results)
	}
}
