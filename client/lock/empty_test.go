package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// Goal: an empty name, which mostly is a variable that is not set, is refused by everything
// that has a name, before anything is sent. Method: the client is closed.
func TestEmptyName(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		s := lock.NewSession(c, rig.Must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute})))
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
		_, alone := lock.Lock(ctx, c, "", time.Minute)
		for name, err := range map[string]error{
			"leader": leader, "observe": observed, "campaign": campaign, "lock alone": alone,
			"prefer": e.Prefer(ctx, "a"), "depose": e.Depose(ctx, "a"),
			"mutex":     failure(s.Mutex("").Lock(ctx)),
			"try":       failure(s.Mutex("").TryLock(ctx)),
			"read":      failure(s.RWMutex("").RLock(ctx)),
			"write":     failure(s.RWMutex("").Lock(ctx)),
			"semaphore": failure(s.Semaphore("", 1).Acquire(ctx)),
		} {
			if !errors.Is(err, client.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func failure(_ *lock.Held, err error) error { return err }
