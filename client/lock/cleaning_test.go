package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

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
		rig.Must[*lock.Held](t)(session(t, direct).Mutex("m").Lock(rig.Soon(t)))
		c := rig.Through(t, members[0], leaves("m"), func(n int) *pb.Response {
			if n <= 2 {
				return rig.Refused(n)
			}
			return nil
		})
		if _, err := session(t, c).Mutex("m").LockWithin(rig.Soon(t), 1); !errors.Is(
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
		rig.Must[*lock.Held](t)(session(t, members.connect(t)).Mutex("m").Lock(rig.Soon(t)))
		s := session(t, rig.Through(t, members[0], leaves("m"), rig.Refused))
		if _, err := s.Mutex("m").LockWithin(rig.Soon(t), 1); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("it waits in vain: %v", err)
		}
		s.Lease().Close()
	})
}

// TestDiscardedLater: the lease of a lock without a session that could not be had is revoked, also
// if the caller's context ends meanwhile.
func TestDiscardedLater(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct := members.connect(t)
		const ttl = 10 * time.Minute
		rig.Must[*lock.Held](t)(session(t, direct).Mutex("m").Lock(rig.Soon(t)))
		ctx, cancel := context.WithCancel(rig.Soon(t))
		revoked := make(chan struct{})
		c := rig.Through(t, members[0], rig.Revokes, func(n int) *pb.Response {
			switch n {
			case 1:
				cancel()
				return rig.Refusal(pb.Reason_REASON_UNAVAILABLE)
			case 2:
				close(revoked)
			}
			return nil
		})
		if _, err := lock.TryLock(ctx, c, "m", ttl); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("a second holds it: %v", err)
		}
		select {
		case <-revoked:
		case <-rig.Soon(t).Done():
			t.Error("its lease is not revoked")
		}
	})
}
