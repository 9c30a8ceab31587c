package lock_test

import (
	"errors"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/lock"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestGoesOnCleaning: the key of who waited in vain goes, though it is refused twice that it does.
func TestGoesOnCleaning(t *testing.T) {
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
			t.Errorf("it waits in vain: %v", err)
		}
		rig.Keys(t, direct, "m/", 1)
	})
}

// TestCleansNoLonger: who may not delete its key tries as long as its lease lives, and no longer.
// TestMain sees what goes on.
func TestCleansNoLonger(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		rig.Must[*lock.Held](t)(lock.NewMutex(session(t, members.connect(t)), "m").Lock(rig.Soon(t)))
		s := session(t, rig.Through(t, members[0], leaves("m"), rig.Refused))
		if _, err := lock.NewMutex(s, "m").LockWithin(rig.Soon(t), 1); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("it waits in vain: %v", err)
		}
		s.Lease().Close()
	})
}
