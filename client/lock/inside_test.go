package lock_test

import (
	"context"
	"testing"
	"time"

	"leasehold.dev/client/lock"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestReleaseInside: a function under a lock or a lead may release it using its own context, which
// ends then; that is not an error.
func TestReleaseInside(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		c := members.connect(t)
		s := session(t, c)
		for range 10 { // the context and the answer race
			err := lock.NewMutex(s, "in").Do(ctx,
				func(during context.Context, held *lock.Held) error {
					// Use the function's context and a derived one with a shorter deadline.
					less, cancel := context.WithTimeout(during, time.Minute)
					defer cancel()
					err := held.Release(less)
					if during.Err() == nil {
						<-during.Done()
					}
					return err
				})
			if err != nil {
				t.Fatalf("released inside: %v", err)
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
