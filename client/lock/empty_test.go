package lock_test

import (
	"context"
	"errors"
	"testing"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestEmptyName checks that every call rejects an empty name before it sends anything. An empty
// name usually comes from an unset variable.
func TestEmptyName(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		s := session(t, c)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		e := lock.NewElection(c, "")
		observe := func(ctx context.Context) (*lock.LeaderInfo, error) {
			for l, err := range e.Observe(ctx) {
				return &l, err
			}
			return nil, nil
		}
		_, leader := e.Leader(ctx)
		_, observed := observe(ctx)
		_, campaign := e.Campaign(ctx, s, lock.Candidate{})
		for name, err := range map[string]error{
			"leader": leader, "observe": observed, "campaign": campaign,
			"prefer": e.Prefer(ctx, "a"), "depose": e.Depose(ctx, "a"),
			"mutex":     failure(lock.NewMutex(s, "").Lock(ctx)),
			"try":       failure(lock.NewMutex(s, "").TryLock(ctx)),
			"read":      failure(lock.NewRWMutex(s, "").RLock(ctx)),
			"write":     failure(lock.NewRWMutex(s, "").Lock(ctx)),
			"semaphore": failure(lock.NewSemaphore(s, "", 1).Acquire(ctx)),
		} {
			if !errors.Is(err, client.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func failure(_ *lock.Held, err error) error { return err }
