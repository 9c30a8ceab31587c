package access

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// TestRoleRevoked checks that revoking a user's permission ends its open calls at the same
// revision, through every member. They deliver nothing afterward, and a cache stops answering from
// memory once the change is acknowledged.
func TestRoleRevoked(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCluster(t)
		c.rootPuts(t, "alice/key", "1")
		c.each(t, func(t *testing.T, m *inprocess.Member) {
			ctx := timeout(t)
			alice := connectAs(t, "alice", m)
			watch := openWatch(t, alice, store.Watch{Key: "alice/", End: "alice0"})
			kept := openCache(t, alice)
			first, second := openSession(t, alice), openSession(t, alice)
			holder, err := lock.NewMutex(first, "alice/lock").Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			waiting, other := make(chan error, 1), lock.NewMutex(second, "alice/lock")
			go func() {
				_, err := other.Lock(ctx)
				waiting <- err
			}()
			for range 2 { // the holder's and the waiter's keys
				if _, err := watch.Next(ctx); err != nil {
					t.Fatal(err)
				}
			}
			c.revokeRole(t, "alice")
			if kv, err := kept.Get(ctx, "alice/key"); err == nil {
				t.Errorf("cached get returned %v, want permission denied", kv)
			} else {
				wantDenied(t, "cache", err, "you are alice (no roles)")
			}
			c.rootPuts(t, "alice/key", "2")
			if u, err := watch.Next(ctx); err == nil {
				t.Errorf("watch delivered %+v, want permission denied", u)
			} else {
				wantDenied(t, "watch", err)
			}
			wantDenied(t, "lock", <-waiting)
			_, err = alice.Get(ctx, "alice/key")
			wantDenied(t, "get", err)
			wantDenied(t, "release", holder.Release(ctx))
			if err := errors.Join(first.Release(ctx), second.Release(ctx)); err != nil {
				t.Error(err)
			}
		})
	})
}

func openWatch(t *testing.T, c *client.Client, what store.Watch) *client.Watcher {
	t.Helper()
	w, err := c.Watch(timeout(t), what)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// openCache opens a cache and fills it with alice's key.
func openCache(t *testing.T, c *client.Client) *cache.Cache {
	t.Helper()
	ctx := timeout(t)
	kept, err := cache.Open(ctx, c, []store.KeyRange{store.Prefix("alice/")}, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = kept.Close(ctx) // the lease expires anyway
	})
	for kept.Stats().Kept == 0 {
		if _, err := kept.Get(ctx, "alice/key"); err != nil {
			t.Fatal(err)
		}
	}
	return kept
}

// TestEventFilter checks that a stream of lease events delivers the events that its user may see at
// the time. If the user loses a permission and regains it, the stream survives but omits the events
// in between. Carol may also see bob's leases. She loses and regains the role that lets her see
// alice's.
func TestEventFilter(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCluster(t)
		may := namePermission("carol2", "bob/", pb.NamePermission_KIND_SEE)
		if _, err := c.root.RoleAdd(timeout(t), "carol2"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.access.GrantNames(timeout(t), may); err != nil {
			t.Fatal(err)
		}
		if _, err := c.root.UserGrantRole(timeout(t), "carol", "carol2"); err != nil {
			t.Fatal(err)
		}
		c.each(t, func(t *testing.T, m *inprocess.Member) {
			ctx := timeout(t)
			alice, bob := connectAs(t, "alice", m), connectAs(t, "bob", m)
			events, err := connectAs(t, "carol", m).LeaseEvents(ctx, leases.Watch{})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Close()
			grant := func(by *client.Client, name string) {
				t.Helper()
				if _, err := by.GrantOnly(ctx, client.Grant{TTL: time.Minute, Name: name}); err != nil {
					t.Fatal(err)
				}
			}
			wantEvent := func(want string) {
				t.Helper()
				for {
					u, err := events.Next(ctx)
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range u.Events {
						if e.Lease.Name != want {
							t.Errorf("got an event of %s, want %s", e.Lease.Name, want)
						}
						return
					}
				}
			}
			at := m.Name()
			grant(alice, "alice/1"+at)
			wantEvent("alice/1" + at)
			c.revokeRole(t, "carol")
			grant(alice, "alice/2"+at)
			grant(bob, "bob/"+at)
			wantEvent("bob/" + at)
			c.restoreRole(t, "carol")
			grant(alice, "alice/3"+at)
			wantEvent("alice/3" + at)
		})
	})
}

// TestResumedWatchIsRefused checks that a watch that resumes after a broken connection is rejected
// if the permission was revoked meanwhile, and delivers none of the missed events. It cuts the
// line, revokes the role, puts a key, and restores the line. In ZooKeeper's CVE-2026-59739, watches
// that clients set again after reconnecting were not authorized.
func TestResumedWatchIsRefused(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCluster(t)
		c.each(t, func(t *testing.T, m *inprocess.Member) {
			ctx := timeout(t)
			line := m.Line()
			alice := connectAs(t, "alice", line)
			watch := openWatch(t, alice, store.Watch{Key: "alice/", End: "alice0"})
			line.SetCut(true)
			c.revokeRole(t, "alice")
			c.rootPuts(t, "alice/key", "secret")
			line.SetCut(false)
			if u, err := watch.Next(ctx); err == nil {
				t.Errorf("watch delivered %+v, want permission denied", u)
			} else {
				wantDenied(t, "watch", err)
			}
		})
	})
}

// TestPasswordChanged checks that a client's calls fail immediately once its password has been
// changed or its user deleted. It changes a user's password, connects with the new one, and deletes
// the user. The rejected calls have no timeout, so they would hang if the client retried.
func TestPasswordChanged(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCluster(t)
		c.each(t, func(t *testing.T, m *inprocess.Member) {
			ctx := timeout(t)
			user := "user-" + m.Name()
			if _, err := c.root.UserAdd(ctx, user, user); err != nil {
				t.Fatal(err)
			}
			if _, err := c.root.UserGrantRole(ctx, user, "alice"); err != nil {
				t.Fatal(err)
			}
			old := connectAs(t, user, m)
			if _, err := old.Put(ctx, putOf("alice/key", "x")); err != nil {
				t.Fatal(err)
			}
			if _, err := c.root.UserChangePassword(ctx, user, "new"); err != nil {
				t.Fatal(err)
			}
			if _, err := old.Get(t.Context(), "alice/key"); !errors.Is(err, client.ErrNotLoggedIn) {
				t.Errorf("with the old password: %v", err)
			}
			newer := inprocess.Connect(t, client.Config{User: user, Password: "new", AnyMember: true},
				m.Endpoint())
			if _, err := newer.Get(ctx, "alice/key"); err != nil {
				t.Errorf("with the new password: %v", err)
			}
			if _, err := c.root.UserDelete(ctx, user); err != nil {
				t.Fatal(err)
			}
			_, err := newer.Put(t.Context(), putOf("alice/key", "x"))
			if !errors.Is(err, client.ErrNotLoggedIn) {
				t.Errorf("as a deleted user: %v", err)
			}
		})
	})
}

// TestNotLoggedIn checks that calls without a valid login fail immediately and report that they had
// no effect.
func TestNotLoggedIn(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCluster(t)
		c.each(t, func(t *testing.T, m *inprocess.Member) {
			for name, cfg := range map[string]client.Config{
				"nobody": {}, "wrong password": {User: "alice", Password: "bob"}, "no user": {User: "eve"},
				"forged token": {Token: "alice.1"},
			} {
				nobody := inprocess.Connect(t, cfg, m.Endpoint())
				_, err := nobody.Put(t.Context(), putOf("alice/key", "x"))
				if !errors.Is(err, client.ErrNotLoggedIn) || errors.Is(err, client.ErrUnknownOutcome) {
					t.Errorf("%s: %v", name, err)
				}
				err = nobody.Revoke(t.Context(), leases.Ref{ID: 7})
				if !errors.Is(err, client.ErrNotLoggedIn) || errors.Is(err, client.ErrUnknownOutcome) {
					t.Errorf("%s: revoke: %v", name, err)
				}
				if _, err := nobody.Watch(t.Context(), store.Watch{Key: "k"}); err == nil {
					t.Errorf("%s: watch: no error", name)
				}
			}
		})
	})
}

// TestEnabledWhileConnected checks that when access control is enabled, a connected client with a
// login keeps its lease and watch, and a client without a login is rejected.
func TestEnabledWhileConnected(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m, root := startSingle(t)
		ctx := timeout(t)
		if _, err := root.AuthDisable(ctx); err != nil {
			t.Fatal(err)
		}
		user, nobody := connectAs(t, "root", m), inprocess.Connect(t, client.Config{}, m.Endpoint())
		held, err := user.Grant(ctx, client.Grant{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		watch := openWatch(t, user, store.Watch{Key: "k"})
		if _, err := nobody.Put(ctx, putOf("j", "1")); err != nil {
			t.Fatal(err)
		}
		open := inprocess.Etcd(t, m.Endpoint())
		if _, err := open.AuthEnable(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := nobody.Put(t.Context(), putOf("k", "0")); !errors.Is(err, client.ErrNotLoggedIn) {
			t.Errorf("anonymous put: %v, want not logged in", err)
		}
		if _, err := user.Put(ctx, store.Put{Key: "k", Value: []byte("1"), Lease: held.ID()}); err != nil {
			t.Errorf("put as a user: %v", err)
		}
		if u, err := watch.Next(ctx); err != nil || string(u.Events[0].KV.Value) != "1" {
			t.Errorf("the user's watch: %+v, %v", u, err)
		}
	})
}
