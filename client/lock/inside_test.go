package lock_test

import (
	"context"
	"testing"
	"time"

	"leasehold.dev/client/lock"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestGivenUpInside: what runs under a lock, or leads, may give that up by the
// context that it has, which ends then, and nobody takes that for a failure.
func TestGivenUpInside(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		c := members.connect(t)
		s := session(t, c)
		for range 10 { // the context and the answer race
			err := lock.NewMutex(s, "in").Do(ctx,
				func(during context.Context, held *lock.Held) error {
					// It is told by its own context, and by one of its own with less time.
					less, cancel := context.WithTimeout(during, time.Minute)
					defer cancel()
					err := held.Release(less)
					if during.Err() == nil {
						<-during.Done()
					}
					return err
				})
			if err != nil {
				t.Fatalf("unlocked inside: %v", err)
			}
		}
		heir := session(t, c)
		var waits <-chan rig.Answer[*lock.Leading]
		err := lock.NewElection(c, "in").Lead(ctx, s, lock.Candidate{},
			func(during context.Context, l *lock.Leading) error {
				rig.Keys(t, c, "in~candidates/", 0)
				waits = standAs(t, c, heir, "in", lock.Candidate{ID: "heir"})
				return l.HandOver(during, "heir")
			})
		if err != nil {
			t.Fatalf("handed over inside: %v", err)
		}
		wins(t, waits)
	})
}
