package lock_test

import (
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestMutexWithEtcd: etcd's concurrency.Mutex and ours exclude each other on one name, and
// wait in one wait queue.
func TestMutexWithEtcd(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		c, e := members.connect(t), members.etcd(t)
		theirSession := rig.Must[*concurrency.Session](t)(concurrency.NewSession(e))
		t.Cleanup(func() { _ = theirSession.Close() })
		ours := session(t, c).Mutex("both")
		theirs := concurrency.NewMutex(theirSession, "both")
		held := rig.Must[*lock.Held](t)(ours.Lock(ctx))
		for range 3 {
			if err := theirs.TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
				t.Fatalf("theirs, while ours is locked: %v", err)
			}
			waits := rig.Async(func() (struct{}, error) { return struct{}{}, theirs.Lock(ctx) })
			rig.Keys(t, c, "both/", 2)
			select {
			case a := <-waits:
				t.Fatalf("both have the lock: %v", a)
			default:
			}
			if err := held.Release(ctx); err != nil {
				t.Fatal(err)
			}
			if a := <-waits; a.Err != nil {
				t.Fatal(a.Err)
			}
			if _, err := ours.TryLock(ctx); !errors.Is(err, lock.ErrLocked) {
				t.Fatalf("ours, while theirs is locked: %v", err)
			}
			next := rig.Async(func() (*lock.Held, error) { return ours.Lock(ctx) })
			rig.Keys(t, c, "both/", 2)
			if err := theirs.Unlock(ctx); err != nil {
				t.Fatal(err)
			}
			a := <-next
			if a.Err != nil || a.Value.Token() <= held.Token() || a.Value.Revision() <= held.Revision() {
				t.Fatalf("%+v", a)
			}
			held = a.Value
		}
	})
}

// TestMutexWithNode: the Lock of Node's package etcd3 is one key of the lock's name itself,
// put on a lease of its own in a transaction, if it is not there, and given up by the lease's
// revocation; it does not wait. So it does not stand in our wait queue. A program that shares a
// lock with it makes the same requests, as ours does here. (Here etcd's client stands in for
// the package; the package itself runs in test/outside, suite node.)
func TestMutexWithNode(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		c, e := members.connect(t), members.etcd(t)
		node := func() (held bool, release func()) {
			l := rig.Must[*clientv3.LeaseGrantResponse](t)(e.Grant(ctx, 30))
			r := rig.Must[*clientv3.TxnResponse](t)(e.Txn(ctx).
				If(clientv3.Compare(clientv3.CreateRevision("job"), "=", 0)).
				Then(clientv3.OpPut("job", "", clientv3.WithLease(l.ID))).
				Commit())
			return r.Succeeded, func() { rig.Must[*clientv3.LeaseRevokeResponse](t)(e.Revoke(ctx, l.ID)) }
		}
		ours := func() (held bool, release func()) {
			l := session(t, c).Lease()
			r := rig.Must[client.TxnResult](t)(c.Txn(ctx, store.Txn{
				If:   []store.Compare{store.Key("job").Missing()},
				Then: []store.Op{store.Put{Key: "job", Lease: l.ID()}},
			}))
			return r.Succeeded, func() {
				if err := l.Revoke(ctx); err != nil {
					t.Error(err)
				}
			}
		}
		for i, take := range []func() (bool, func()){node, ours, node, ours} {
			held, release := take()
			if !held {
				t.Fatalf("%d: it is free, and cannot be had", i)
			}
			for _, other := range []func() (bool, func()){node, ours} {
				second, undo := other()
				if second {
					t.Errorf("%d: two have it", i)
				}
				undo()
			}
			release()
		}
	})
}
