package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/lock"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// A function runs in a session that is released when it returns; after a loss it runs again in a
// new one, until it returns in a valid session.
func TestRun(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{RenewAfter: 0.01}), rig.Soon(t)
		mine := errors.New("mine")
		var seen []*client.Live
		err := c.Run(ctx, client.Session{Owner: "host"}, func(
			during context.Context, s *client.Live,
		) error {
			seen = append(seen, s)
			held := rig.Must[*lock.Held](t)(lock.NewMutex(s, "m").Lock(during))
			if s.Err() != nil || during.Err() != nil || s.Lease().Info().Owner != "host" {
				t.Errorf("session %d: %v, %v", len(seen), s.Err(), during.Err())
			}
			if len(seen) == 3 {
				return mine
			}
			// By another client, as if it had expired.
			if err := r.Dial(client.Config{}).Revoke(ctx, s.Lease().Ref()); err != nil {
				t.Error(err)
			}
			<-during.Done()
			if cause := context.Cause(during); !errors.Is(cause, client.ErrLost) || held.Err() == nil {
				t.Errorf("lost: %v; the lock: %v", cause, held.Err())
			}
			return map[int]error{1: nil, 2: mine}[len(seen)]
		})
		if !errors.Is(err, mine) || errors.Is(err, client.ErrLost) || len(seen) != 3 {
			t.Errorf("%v, after %d sessions", err, len(seen))
		}
		if !errors.Is(seen[2].Err(), client.ErrReleased) || !seen[2].ValidUntil().IsZero() {
			t.Errorf("the last session: %v", seen[2].Err())
		}
		for l, err := range c.List(ctx, leases.Filter{}) {
			t.Errorf("left behind: %v, %v", l, err)
		}
	})
}

// Run returns when its context ends, with the session released before Close returns; when f
// releases the session itself; and with the error of a session that cannot be opened.
func TestRunEnds(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx, cancel := context.WithCancel(rig.Soon(t))
		err := c.Run(ctx, client.Session{}, func(ctx context.Context, _ *client.Live) error {
			cancel()
			<-ctx.Done()
			return nil
		})
		if err != nil {
			t.Errorf("its context has ended: %v", err)
		}
		calls := 0
		err = c.Run(rig.Soon(t), client.Session{}, func(ctx context.Context, s *client.Live) error {
			calls++
			return s.Release(ctx)
		})
		if err != nil || calls != 1 {
			t.Errorf("f has released it: %v, after %d calls", err, calls)
		}
		for l, err := range c.List(rig.Soon(t), leases.Filter{}) {
			t.Errorf("left behind: %v, %v", l, err)
		}
		c.Close()
		err = c.Run(rig.Soon(t), client.Session{}, nil)
		if !errors.Is(err, client.ErrClosed) {
			t.Errorf("the client is closed: %v", err)
		}
	})
}

// Sessions that are lost at once follow each other ever more slowly.
func TestRunBacksOff(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, other := r.Dial(client.Config{RenewAfter: 0.01}), r.Dial(client.Config{})
		ctx, cancel := context.WithTimeout(rig.Soon(t), time.Minute)
		defer cancel()
		n := 0
		err := c.Run(ctx, client.Session{}, func(ctx context.Context, s *client.Live) error {
			n++
			if err := other.Revoke(ctx, s.Lease().Ref()); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		if err == nil || n < 10 || n > 25 {
			t.Errorf("%d sessions in a minute; %v", n, err)
		}
	})
}
