package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/virtual"
)

// member is a server in the test process together with the line through which clients reach it.
type member struct {
	*inprocess.Member
	*inprocess.Line
	client *clientv3.Client // see etcd
}

// etcd returns an etcd client of this member alone.
func (m *member) etcd(t testing.TB) *clientv3.Client {
	if m.client == nil {
		m.client = inprocess.Etcd(t, m.Member.Endpoint())
	}
	return m.client
}

// newCluster runs n members and waits until all of them are serving.
func newCluster(t testing.TB, n int) []*member {
	t.Helper()
	var list []*member
	for _, m := range inprocess.Run(t, n) {
		list = append(list, &member{Member: m, Line: m.Line()})
	}
	return list
}

// connect returns a client of all members.
func connect(t testing.TB, c client.Config, list ...*member) *client.Client {
	t.Helper()
	for _, m := range list {
		c.Endpoints = append(c.Endpoints, m.Line.Endpoint())
	}
	return inprocess.Connect(t, c)
}

// steadyTTL is the TTL of leases that must survive a fault even if the machine is paused for
// several seconds. Clients configured with steady renew such leases every two seconds, which keeps
// the tests short.
const steadyTTL = 12 * time.Second

var steady = client.Config{RenewAfter: 1. / 6}

// ask returns a context that limits how long a test can take.
func ask(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestCluster checks leases, keys, transactions and watches with three members.
func TestCluster(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 3)
		c := connect(t, client.Config{}, members...)
		for name, test := range map[string]func(*testing.T, *client.Client){
			"store": storeKeys, "leases": leasesOf, "tokens": tokens, "why": why,
			"list": list, "bound": bound, "named": named, "future": future,
		} {
			virtual.Step(t, name, func(t *testing.T) { test(t, c) })
		}
	})
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eventually waits until ok returns true, checking repeatedly.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx := ask(t)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("in vain: %s", what)
		}
	}
}

// renewed waits until all leases are valid for longer than they are now.
func renewed(t testing.TB, list ...*client.Lease) {
	t.Helper()
	until := make([]time.Time, len(list))
	for i, l := range list {
		until[i] = l.ValidUntil().Add(time.Millisecond)
	}
	for i, l := range list {
		eventually(t, "the lease is renewed", func() bool {
			if err := l.Err(); err != nil {
				t.Fatalf("lease %d: %v", l.ID(), err)
			}
			return l.ValidUntil().After(until[i])
		})
	}
}

func storeKeys(t *testing.T, c *client.Client) {
	ctx := ask(t)
	put := must[store.PutResult](t)
	put(c.Put(ctx, store.Put{Key: "s/a", Value: []byte("1")}))
	second := put(c.Put(ctx, store.Put{Key: "s/a", Value: []byte("2"), PrevKV: true}))
	if string(second.Prev.Value) != "1" {
		t.Errorf("put %+v", second)
	}
	put(c.Put(ctx, store.Put{Key: "s/b"}))
	all := store.Prefix("s/").Range()
	r := must[store.RangeResult](t)(c.Range(ctx, all))
	if r.Count != 2 || string(r.KVs[0].Value) != "2" || r.KVs[0].Version != 2 {
		t.Errorf("range %+v", r)
	}
	txn := must[client.TxnResult](t)
	swap := store.Txn{
		If:   []store.Compare{store.Key("s/a").Value(store.Equal, []byte("2"))},
		Then: []store.Op{store.Put{Key: "s/a", Value: []byte("3")}, store.Delete{Key: "s/b"}},
		Else: []store.Op{store.Range{Key: "s/a"}},
	}
	if got := txn(c.Txn(ctx, swap)); !got.Succeeded || got.Results[1].Delete.Deleted != 1 {
		t.Errorf("first %+v", got)
	}
	if got := txn(c.Txn(ctx, swap)); got.Succeeded ||
		string(got.Results[0].Range.KVs[0].Value) != "3" {
		t.Errorf("second %+v", got)
	}
	if _, err := c.Get(ctx, "s/b"); !errors.Is(err, client.ErrKeyNotFound) {
		t.Errorf("get: %v", err)
	}
	if _, err := c.Put(ctx, store.Put{}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("put of no key: %v", err)
	}
	d := must[store.DeleteResult](t)(c.Delete(ctx, store.Delete{Key: "s/a", PrevKV: true}))
	if d.Deleted != 1 || string(d.Prev[0].Value) != "3" {
		t.Errorf("delete %+v", d)
	}
}

func leasesOf(t *testing.T, c *client.Client) {
	ctx := ask(t)
	l := must[*client.Lease](t)(c.Grant(ctx, client.Grant{
		TTL: 9 * time.Second, Name: "l/name", Owner: "me", Resumable: true,
		Labels: map[string]string{"zone": "a"},
		Keys:   []store.KV{{Key: "l/k", Value: []byte("v")}},
	}))
	_, err := c.Grant(ctx, client.Grant{TTL: time.Minute, Name: "l/name"})
	var taken *client.TakenError
	if !errors.As(err, &taken) || taken.Holder.Token != l.Token() || taken.Holder.Owner != "me" {
		t.Errorf("second grant: %v", err)
	}
	again, err := c.GrantOnly(ctx, client.Grant{TTL: time.Minute, RequestID: "l/r"})
	if err != nil || again.Existed {
		t.Fatalf("%+v, %v", again, err)
	}
	third, err := c.GrantOnly(ctx, client.Grant{TTL: time.Minute, RequestID: "l/r"})
	if err != nil || !third.Existed || third.ID != again.ID || third.Remaining != time.Minute {
		t.Errorf("%+v, %v", third, err)
	}
	grantedAgain(t, c, again.ID)
	pointed(t, c)
	renewed(t, l)
	info := must[leases.Info](t)(c.DescribeKeys(ctx, leases.Ref{Name: "l/name"}))
	if info.ID != l.ID() || len(info.Keys) != 1 || info.Labels["zone"] != "a" {
		t.Errorf("described %+v", info)
	}
	if err := c.Detach(ctx, l.Ref(), "l/k"); err != nil {
		t.Error(err)
	}
	if err := c.Attach(ctx, l.Ref(), "l/k"); err != nil {
		t.Error(err)
	}
	if err := l.ChangeTTL(ctx, time.Minute); err != nil ||
		time.Until(l.ValidUntil()) < 50*time.Second {
		t.Errorf("valid for %v, %v", time.Until(l.ValidUntil()), err)
	}
	next := must[*client.Lease](t)(c.Resume(ctx, leases.Ref{ID: l.ID()}, l.Secret(), 0))
	if next.Token() <= l.Token() || !errors.Is(l.Err(), client.ErrReplaced) {
		t.Errorf("token %d after %d, %v", next.Token(), l.Token(), l.Err())
	}
	if err := next.Revoke(ctx); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(ctx, "l/k"); !errors.Is(err, client.ErrKeyNotFound) {
		t.Errorf("the key of a revoked lease: %v", err)
	}
	if err := c.Revoke(ctx, next.Ref()); !errors.Is(err, client.ErrLeaseNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
}

// future checks that a watch fails if it starts from a revision that the store has not reached. The
// error contains both revisions.
func future(t *testing.T, c *client.Client) {
	ctx := ask(t)
	now := must[client.TxnResult](t)(c.Txn(ctx, store.Txn{Then: []store.Op{
		store.Put{Key: "f/k"},
	}})).Revision
	w, err := c.Watch(ctx, store.Watch{Key: "f/k", From: now + 5})
	if err == nil {
		defer w.Close()
		_, err = w.Next(ctx)
	}
	text := fmt.Sprintf("revision is in the future: watch from revision %d, but the latest is %d",
		now+5, now)
	if !errors.Is(err, client.ErrFutureRevision) || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %q", err, text)
	}
}

func tokens(t *testing.T, c *client.Client) {
	ctx := ask(t)
	l := must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute, Name: "t/name"}))
	write := func(token lease.Token) bool {
		return must[client.TxnResult](t)(c.Txn(ctx, store.Txn{
			If:   []store.Compare{store.NameHeld("t/name", token), store.LeaseAlive(l.ID())},
			Then: []store.Op{store.Put{Key: "t/k"}},
		})).Succeeded
	}
	if !write(l.Token()) || write(l.Token()+1) {
		t.Error("the condition is not what it should be")
	}
	g := must[*client.Granted](t)(l.HandOver(ctx, "you"))
	old := leases.Ref{ID: g.ID, Token: l.Token()}
	if valid, current, err := c.CheckLease(ctx, old); err != nil || valid || current != g.Token {
		t.Errorf("old token: %v, current %d, %v", valid, current, err)
	}
	next := must[*client.Lease](t)(c.Keep(g, 0))
	if !write(next.Token()) {
		t.Error("the new holder may not write")
	}
	id := leases.NewID()
	granted := must[client.TxnResult](t)(c.Txn(ctx, store.Txn{
		If: []store.Compare{store.Key("t/lock").Missing()},
		Then: []store.Op{
			client.Grant{ID: id, TTL: time.Minute},
			store.Put{Key: "t/lock", Lease: id},
			next.Ref().Renew(),
		},
	}))
	held := must[*client.Lease](t)(c.Keep(granted.Results[0].Grant, 0))
	drawn := must[client.TxnResult](t)(c.Txn(ctx, store.Txn{Then: []store.Op{
		store.DrawToken{}, store.Txn{Then: []store.Op{store.DrawToken{}}},
	}}))
	first, second := drawn.Results[0].Token, drawn.Results[1].Txn.Results[0].Token
	if first <= held.Token() || second <= first || drawn.Revision != granted.Revision {
		t.Errorf("drawn %+v", drawn)
	}
	if held.Token() <= next.Token() || granted.Results[2].Renew.ID != next.ID() {
		t.Errorf("granted %+v", granted.Results)
	}
	held.Close()
	next.Close()
	end := must[client.TxnResult](t)(c.Txn(ctx, store.Txn{Then: []store.Op{
		held.Ref().Revoke(), next.Ref().Revoke(),
	}}))
	if end.Results[0].Revoked != 1 {
		t.Errorf("revoked %+v", end.Results)
	}
}

func why(t *testing.T, c *client.Client) {
	ctx := ask(t)
	w := must[*client.Watcher](t)(c.Watch(ctx, store.Watch{
		Key: "w/", End: store.Prefix("w/").End, NoPut: true, PrevKV: true,
	}))
	defer w.Close()
	expect := func(reason store.Cause, key string, id lease.ID) {
		t.Helper()
		u := must[store.Update](t)(w.Next(ctx))
		if e := u.Events[0]; !e.Delete || e.Cause != reason || e.KV.Key != key || e.Lease != id ||
			string(e.Prev.Value) != "v" {
			t.Errorf("%+v, want %s %v by lease %d", e, key, reason, id)
		}
	}
	leased := func(key string, ttl time.Duration) *client.Lease {
		return must[*client.Lease](t)(c.Grant(ctx, client.Grant{
			TTL: ttl, Keys: []store.KV{{Key: key, Value: []byte("v")}},
		}))
	}
	a := leased("w/a", time.Minute)
	if err := a.Revoke(ctx); err != nil {
		t.Fatal(err)
	}
	expect(store.Revoked, "w/a", a.ID())
	b := leased("w/b", time.Second)
	b.Close()
	expect(store.Expired, "w/b", b.ID())
	if _, err := c.Put(ctx, store.Put{Key: "w/c", Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(ctx, store.Delete{Key: "w/c"}); err != nil {
		t.Fatal(err)
	}
	expect(store.Deleted, "w/c", 0)
}

func list(t *testing.T, c *client.Client) {
	ctx := ask(t)
	for i := range 5 {
		must[*client.Granted](t)(c.GrantOnly(ctx, client.Grant{
			TTL: time.Minute, Name: fmt.Sprint("list/", i), Owner: fmt.Sprint(i % 2),
		}))
	}
	var names []string
	var some []lease.ID
	for l, err := range c.List(ctx, leases.Filter{NamePrefix: "list/", Owner: "0"}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, l.Name)
		some = append(some, l.ID)
	}
	if fmt.Sprint(names) != "[list/0 list/2 list/4]" {
		t.Errorf("listed %v", names)
	}
	slices.Sort(some)
	var these []lease.ID
	for l, err := range c.List(ctx, leases.Filter{IDs: append(some[1:], 99)}) {
		if err != nil {
			t.Fatal(err)
		}
		these = append(these, l.ID)
	}
	if !slices.Equal(these, some[1:]) {
		t.Errorf("listed %v, not %v", these, some[1:])
	}
}
