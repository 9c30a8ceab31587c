package cluster

import (
	"context"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"leasehold.dev/test/tier"
)

// TestEveryMember makes each kind of call through each member, and reads what it
// did through the same member at once.
func TestEveryMember(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	c := newCluster(t, 3)
	for _, m := range c.members {
		t.Run(m.name, func(t *testing.T) {
			a := m.admin
			t.Run("keys", func(t *testing.T) { keysThrough(t, a) })
			t.Run("leases", func(t *testing.T) { leasesThrough(t, a) })
			t.Run("watch", func(t *testing.T) { watchThrough(t, a) })
			t.Run("session", func(t *testing.T) { sessionThrough(t, a) })
			t.Run("compact", func(t *testing.T) { compactThrough(t, a) })
		})
	}
	sameHash(t, c)
}

// check fails the test unless a condition of an answer holds.
func check(t *testing.T, ok bool, what string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(what, args...)
	}
}

func keysThrough(t *testing.T, a *clientv3.Client) {
	ctx := soon(t)
	p, err := a.Put(ctx, "every/k", "1")
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]clientv3.OpOption{nil, {clientv3.WithSerializable()}} {
		g, err := a.Get(ctx, "every/k", opts...)
		check(t, err == nil && len(g.Kvs) == 1 && g.Kvs[0].ModRevision == p.Header.Revision,
			"get: %v %v", g, err)
	}
	x, err := a.Txn(ctx).If(clientv3.Compare(clientv3.Value("every/k"), "=", "1")).
		Then(clientv3.OpPut("every/k", "2"), clientv3.OpGet("every/k")).Commit()
	check(t, err == nil && x.Succeeded && x.Header.Revision == p.Header.Revision+1,
		"txn: %v %v", x, err)
	d, err := a.Delete(ctx, "every/k", clientv3.WithPrevKV())
	check(t, err == nil && d.Deleted == 1 && string(d.PrevKvs[0].Value) == "2",
		"delete: %v %v", d, err)
	g, err := a.Get(ctx, "every/k", clientv3.WithSerializable())
	check(t, err == nil && len(g.Kvs) == 0, "get after delete: %v %v", g, err)
}

func leasesThrough(t *testing.T, a *clientv3.Client) {
	ctx := soon(t)
	g, err := a.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Put(ctx, "every/l", "", clientv3.WithLease(g.ID))
	check(t, err == nil, "put with a lease: %v", err)
	k, err := a.KeepAliveOnce(ctx, g.ID)
	check(t, err == nil && k.TTL == 60, "keep alive: %v %v", k, err)
	ttl, err := a.TimeToLive(ctx, g.ID, clientv3.WithAttachedKeys())
	check(t, err == nil && ttl.TTL > 50 && ttl.GrantedTTL == 60 && len(ttl.Keys) == 1,
		"time to live: %v %v", ttl, err)
	all, err := a.Leases(ctx)
	check(t, err == nil && len(all.Leases) > 0, "leases: %v %v", all, err)
	_, err = a.Revoke(ctx, g.ID)
	check(t, err == nil, "revoke: %v", err)
	r, err := a.Get(ctx, "every/l", clientv3.WithSerializable())
	check(t, err == nil && len(r.Kvs) == 0, "the key of a revoked lease: %v %v", r, err)
	_, err = a.KeepAliveOnce(ctx, g.ID)
	check(t, err == rpctypes.ErrLeaseNotFound, "keep alive after revoke (L3): %v", err)
	ttl, err = a.TimeToLive(ctx, g.ID)
	check(t, err == nil && ttl.TTL == -1, "time to live after revoke: %v %v", ttl, err)
	_, err = a.Revoke(ctx, g.ID)
	check(t, err == rpctypes.ErrLeaseNotFound, "revoke after revoke: %v", err)
}

func watchThrough(t *testing.T, a *clientv3.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := a.Put(ctx, "every/w", "1")
	if err != nil {
		t.Fatal(err)
	}
	ch := a.Watch(ctx, "every/w", clientv3.WithRev(p.Header.Revision))
	if _, err := a.Put(ctx, "every/w", "2"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(got) < 2 {
		r, ok := <-ch
		if !ok || r.Err() != nil {
			t.Fatalf("the watch ended: %v", r.Err())
		}
		for _, e := range r.Events {
			got = append(got, string(e.Kv.Value))
		}
	}
	check(t, fmt.Sprint(got) == "[1 2]", "watched %v", got)
}

func sessionThrough(t *testing.T, a *clientv3.Client) {
	ctx := soon(t)
	s, err := concurrency.NewSession(a, concurrency.WithTTL(60))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := concurrency.NewMutex(s, "every/lock")
	check(t, m.Lock(ctx) == nil, "lock")
	check(t, m.Unlock(ctx) == nil, "unlock")
	e := concurrency.NewElection(s, "every/election")
	check(t, e.Campaign(ctx, "me") == nil, "campaign")
	l, err := e.Leader(ctx)
	check(t, err == nil && string(l.Kvs[0].Value) == "me", "leader: %v %v", l, err)
	check(t, e.Resign(ctx) == nil, "resign")
}

func compactThrough(t *testing.T, a *clientv3.Client) {
	ctx := soon(t)
	p, err := a.Put(ctx, "every/c", "1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Compact(ctx, p.Header.Revision, clientv3.WithCompactPhysical())
	check(t, err == nil, "compact: %v", err)
	_, err = a.Get(ctx, "every/c", clientv3.WithRev(p.Header.Revision-1))
	check(t, err == rpctypes.ErrCompacted, "get what was compacted: %v", err)
	_, err = a.Compact(ctx, p.Header.Revision)
	check(t, err == rpctypes.ErrCompacted, "compact again: %v", err)
}

// sameHash compares the stores of all members at one revision (S3).
func sameHash(t *testing.T, c *cluster) {
	t.Helper()
	revision := c.revision()
	var first uint32
	for i, m := range c.members {
		m.serves() // and so it has applied the revision
		r, err := m.admin.HashKV(soon(t), m.url, revision)
		if err != nil {
			t.Errorf("hash of %s: %v", m.name, err)
			continue
		}
		if i == 0 {
			first = r.Hash
		}
		check(t, r.Hash == first, "%s has hash %x at revision %d, %s has %x (S3)",
			m.name, r.Hash, revision, c.members[0].name, first)
	}
}
