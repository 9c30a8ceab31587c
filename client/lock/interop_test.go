package lock_test

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/client/v3/concurrency"

	"leasehold.dev/client/lock"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestMutexWithEtcd checks that etcd's concurrency.Mutex and lock.Mutex exclude each other on the
// same name and share a wait queue.
func TestMutexWithEtcd(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		c, e := members.connect(t), members.etcd(t)
		theirSession := rig.Must[*concurrency.Session](t)(concurrency.NewSession(e))
		t.Cleanup(func() { _ = theirSession.Close() })
		ours := lock.NewMutex(session(t, c), "both")
		theirs := concurrency.NewMutex(theirSession, "both")
		held := rig.Must[*lock.Held](t)(ours.Lock(ctx))
		for range 3 {
			if err := theirs.TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
				t.Fatalf("etcd's TryLock while we hold the lock: %v", err)
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
				t.Fatalf("our TryLock while etcd's client holds the lock: %v", err)
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
