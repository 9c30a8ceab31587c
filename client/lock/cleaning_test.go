package lock_test

import (
	"errors"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/lock"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestCleanupRetries checks that the key of a waiter that timed out is deleted even if the deletion
// is refused twice.
func TestCleanupRetries(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct := members.connect(t)
		rig.Must[*lock.Held](t)(lock.NewMutex(session(t, direct), "m").Lock(rig.Soon(t)))
		c := rig.Through(t, members[0], leaves("m"), func(n int) *pb.Response {
			if n <= 2 {
				return rig.Refused(n)
			}
			return nil
		})
		if _, err := lock.NewMutex(session(t, c), "m").LockWithin(rig.Soon(t), 1); !errors.Is(
			err, lock.ErrLocked,
		) {
			t.Errorf("LockWithin: %v, want ErrLocked", err)
		}
		rig.Keys(t, direct, "m/", 1)
	})
}

// TestCleanupEndsWithLease checks that a session that cannot delete its key retries only while its
// lease is alive. TestMain checks for leftover goroutines.
func TestCleanupEndsWithLease(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		rig.Must[*lock.Held](t)(lock.NewMutex(session(t, members.connect(t)), "m").Lock(rig.Soon(t)))
		s := session(t, rig.Through(t, members[0], leaves("m"), rig.Refused))
		if _, err := lock.NewMutex(s, "m").LockWithin(rig.Soon(t), 1); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("LockWithin: %v, want ErrLocked", err)
		}
		s.Lease().Close()
	})
}
