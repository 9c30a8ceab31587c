package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestCanceled checks that a call with a canceled context returns the context's error and does not
// run the program's function. It does not affect the roles and locks of other sessions.
func TestCanceled(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		c := members.connect(t)
		e := lock.NewElection(c, "canceled")
		l := leader(t, c, "canceled", lock.Candidate{ID: "a"})
		s := session(t, c)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for name, call := range map[string]func() error{
			"lead": func() error {
				return e.Lead(over, s, lock.Candidate{}, func(context.Context, *lock.Leading) error {
					t.Error("Lead called its function")
					return nil
				})
			},
			"prefer":   func() error { return e.Prefer(over, "a") },
			"depose":   func() error { return e.Depose(over, "a") },
			"leader":   func() error { _, err := e.Leader(over); return err },
			"proclaim": func() error { return l.Proclaim(over, nil) },
			"handOver": func() error { return l.HandOver(over, "a") },
			"observe": func() error {
				for _, err := range e.Observe(over) {
					return err
				}
				return nil
			},
			"do": func() error {
				return lock.NewMutex(s, "canceled").Do(over, func(context.Context, *lock.Held) error {
					t.Error("Do called its function")
					return nil
				})
			},
			"try":    func() error { _, err := lock.NewMutex(s, "try").TryLock(over); return err },
			"within": func() error { _, err := lock.NewMutex(s, "within").LockWithin(over, 1); return err },
		} {
			if err := call(); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if l.Err() != nil || l.ValidUntil().IsZero() {
			t.Errorf("valid until %v, %v", l.ValidUntil(), l.Err())
		}
		if err := l.Release(rig.Soon(t)); err != nil {
			t.Fatal(err)
		}
		if err := l.Release(rig.Soon(t)); !errors.Is(err, client.ErrReleased) || l.Err() == nil {
			t.Errorf("second Release: %v, %v", err, l.Err())
		}
		if until := l.ValidUntil(); !until.IsZero() {
			t.Errorf("valid until %v after Release", until)
		}
	})
}

// TestDefaultCandidateID checks that a candidate's ID defaults to the ID of its lease, and that
// this ID can be used to prefer the candidate.
func TestDefaultCandidateID(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		c := members.connect(t)
		first := leader(t, c, "ids", lock.Candidate{})
		_, other := stand(t, c, "ids", lock.Candidate{Priority: 1})
		s, heir := stand(t, c, "ids", lock.Candidate{})
		if err := first.HandOver(rig.Soon(t), fmt.Sprintf("%x", int64(s.Lease().ID()))); err != nil {
			t.Fatal(err)
		}
		next := wins(t, heir)
		loses(t, other)
		if err := next.Release(rig.Soon(t)); err != nil {
			t.Fatal(err)
		}
		wins(t, other)
	})
}
