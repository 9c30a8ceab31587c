package access

import (
	"errors"
	"slices"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/contrib/pool"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/members"
	"leasehold.dev/client/queue"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// TestTenants checks that with access control enabled, everything in the Go client works within a
// user's own keys and names. Requests for other users' data are rejected immediately, and lists
// omit what the user may not see. It acts as alice and bob, through the leader and a follower. In
// ZooKeeper's CVE-2024-23944, watches exposed other users' paths.
func TestTenants(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCluster(t)
		c.each(t, func(t *testing.T, m *inprocess.Member) {
			alice, bob := connectAs(t, "alice", m), connectAs(t, "bob", m)
			carol := connectAs(t, "carol", m)
			held := grantWithKey(t, alice)
			defer func() {
				if err := held.Revoke(timeout(t)); err != nil {
					t.Errorf("revoke: %v", err)
				}
			}()
			checkDenied(t, bob, held.Ref())
			checkLists(t, held, alice, bob, carol)
			useClients(t, alice, bob)
		})
	})
}

// grantWithKey grants alice a named lease with a key.
func grantWithKey(t *testing.T, alice *client.Client) *client.Lease {
	t.Helper()
	ctx := timeout(t)
	held, err := alice.Grant(ctx, client.Grant{
		TTL: time.Minute, Name: "alice/name", Keys: []store.KV{{Key: "alice/key", Value: []byte("1")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := alice.Attach(ctx, held.Ref(), "alice/key"); err != nil {
		t.Errorf("attach: %v", err)
	}
	if err := held.ChangeTTL(ctx, 50*time.Second); err != nil {
		t.Errorf("ChangeTTL: %v", err)
	}
	if info, err := alice.DescribeKeys(ctx, leases.Ref{Name: "alice/name"}); err != nil ||
		!slices.Equal(info.Keys, []string{"alice/key"}) {
		t.Errorf("DescribeKeys: %+v, %v", info, err)
	}
	return held
}

// checkDenied makes bob try to use what belongs to alice. The calls have no timeout, so they would
// hang if the client retried.
func checkDenied(t *testing.T, bob *client.Client, of leases.Ref) {
	t.Helper()
	ctx := t.Context()
	const isBob = "you are bob (roles: bob)"
	_, err := bob.Put(ctx, putOf("alice/key", "x"))
	wantDenied(t, "put", err, "needs write on alice/key", isBob)
	_, err = bob.Get(ctx, "alice/key")
	wantDenied(t, "get", err, "needs read on alice/key", isBob)
	_, err = bob.Watch(ctx, store.Watch{Key: "alice/", End: "alice0"})
	wantDenied(t, "watch", err, "needs read on alice/ to alice0", isBob)
	_, err = bob.Grant(ctx, client.Grant{TTL: time.Minute, Name: "alice/other"})
	wantDenied(t, "grant", err, "needs hold on the name alice/other", isBob)
	_, err = bob.Describe(ctx, leases.Ref{ID: of.ID})
	wantDenied(t, "describe", err, "the lease is not yours", isBob)
	_, err = bob.Describe(ctx, leases.Ref{Name: "alice/name"})
	wantDenied(t, "describe by name", err, "needs see on the name alice/name", isBob)
	wantDenied(t, "revoke", bob.Revoke(ctx, of))
	wantDenied(t, "attach", bob.Attach(ctx, of, "bob/key"), "the lease is not yours")
	_, err = cache.Open(ctx, bob, []store.KeyRange{store.Prefix("alice/")}, cache.Options{})
	wantDenied(t, "cache", err, "needs read on alice/ to alice0", isBob)
	_, err = lock.NewMutex(openSession(t, bob), "alice/lock").Lock(ctx)
	wantDenied(t, "lock", err, isBob)
}

func openSession(t *testing.T, c *client.Client) *client.Session {
	t.Helper()
	s, err := c.Open(timeout(t), client.Grant{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkLists checks which users see alice's lease in lists.
func checkLists(t *testing.T, held *client.Lease, alice, bob, carol *client.Client) {
	t.Helper()
	sees := func(c *client.Client) bool {
		for info, err := range c.List(timeout(t), leases.Filter{}) {
			if err != nil {
				t.Error(err)
			}
			if info.ID == held.ID() {
				return true
			}
		}
		return false
	}
	if !sees(alice) || sees(bob) || !sees(carol) {
		t.Errorf("alice sees it: %v, bob: %v, carol: %v", sees(alice), sees(bob), sees(carol))
	}
}

// useClients makes alice use everything built on the client, within her own keys and names.
func useClients(t *testing.T, alice, bob *client.Client) {
	t.Helper()
	ctx := timeout(t)
	held, err := lock.NewMutex(openSession(t, alice), "alice/lock").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	second := lock.NewMutex(openSession(t, alice), "alice/lock")
	if _, err := second.TryLock(ctx); !errors.Is(err, lock.ErrLocked) {
		t.Errorf("a second lock: %v", err)
	}
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
	q := queue.New(alice, "alice/queue", queue.Config{})
	if _, err := q.Push(ctx, []byte("v"), 0); err != nil {
		t.Errorf("push: %v", err)
	}
	if item, err := q.Claim(ctx); err != nil {
		t.Errorf("claim: %v", err)
	} else if err := item.Ack(ctx); err != nil {
		t.Errorf("acknowledge: %v", err)
	}
	_, err = queue.New(bob, "alice/queue", queue.Config{}).Push(ctx, []byte("v"), 0)
	wantDenied(t, "push", err)
	group := members.New(alice, "alice/group")
	if joined, err := group.Register(ctx, openSession(t, alice), "m", nil); err != nil {
		t.Errorf("register: %v", err)
	} else if err := joined.Release(ctx); err != nil {
		t.Errorf("leave: %v", err)
	}
	ids, err := pool.Create(ctx, alice, "alice/pool", pool.Spec{Last: 3})
	if err != nil {
		t.Fatal(err)
	}
	if loan, err := ids.Acquire(ctx, pool.Request{}); err != nil {
		t.Errorf("acquire: %v", err)
	} else if err := loan.Release(ctx); err != nil {
		t.Errorf("release: %v", err)
	}
	kept, err := cache.Open(ctx, alice, []store.KeyRange{store.Prefix("alice/")}, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close(ctx) //nolint:errcheck // the lease expires anyway
	for range 2 {
		if _, err := kept.Get(ctx, "alice/key"); err != nil {
			t.Errorf("cached get: %v", err)
		}
	}
	if s := kept.Stats(); s.Fills != 1 || s.Kept != 1 {
		t.Errorf("stats after two reads: %+v", s)
	}
}
