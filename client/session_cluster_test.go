package client_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestRun checks that a function runs in a session that is released when the function returns. If
// the session is lost, the function runs again in a new one, until it returns in a valid session.
func TestRun(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{RenewAfter: 0.01}), rig.Soon(t)
		mine := errors.New("mine")
		var seen []*client.Session
		err := c.Run(ctx, client.Grant{Owner: "host"}, func(
			during context.Context, s *client.Session,
		) error {
			seen = append(seen, s)
			held := rig.Must[*lock.Held](t)(lock.NewMutex(s, "m").Lock(during))
			if s.Err() != nil || during.Err() != nil || s.Lease().Info().Owner != "host" {
				t.Errorf("session %d: %v, %v", len(seen), s.Err(), during.Err())
			}
			if len(seen) == 3 {
				return mine
			}
			// Another client revokes it, as if it had expired.
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

// TestRunEnds checks when Run returns. It returns when its context ends, in which case the session
// is released before Close returns. It also returns when f releases the session itself, and when a
// session cannot be opened.
func TestRunEnds(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx, cancel := context.WithCancel(rig.Soon(t))
		err := c.Run(ctx, client.Grant{}, func(ctx context.Context, _ *client.Session) error {
			cancel()
			<-ctx.Done()
			return nil
		})
		if err != nil {
			t.Errorf("its context has ended: %v", err)
		}
		calls := 0
		err = c.Run(rig.Soon(t), client.Grant{}, func(ctx context.Context, s *client.Session) error {
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
		err = c.Run(rig.Soon(t), client.Grant{}, nil)
		if !errors.Is(err, client.ErrClosed) {
			t.Errorf("the client is closed: %v", err)
		}
	})
}

// TestRunRevokesLost checks that a session that has ended by the client's clock does not delay the
// next one, even if its lease still exists in the cluster. Here it exists because another client
// renewed it.
func TestRunRevokesLost(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		var log bytes.Buffer
		c := r.Dial(client.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		other, ctx, ttl := r.Dial(client.Config{}), rig.Soon(t), 20*time.Second
		var mended time.Time
		g := client.Grant{TTL: ttl, Name: "n"}
		err := c.Run(ctx, g, func(ctx context.Context, s *client.Session) error {
			if !mended.IsZero() {
				return nil
			}
			r.Cut(c)
			for renew := (store.Txn{Then: []store.Op{s.Lease().Ref().Renew()}}); ctx.Err() == nil; {
				if _, err := other.Txn(rig.Soon(t), renew); err != nil {
					t.Fatal(err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
			r.Mend(c)
			mended = time.Now()
			return nil
		})
		if took := time.Since(mended); err != nil || took > ttl/2 {
			t.Errorf("the next session came after %v: %v", took, err)
		}
		if !strings.Contains(log.String(), "session lost") {
			t.Errorf("the log says nothing of it: %s", log.String())
		}
	})
}

// TestOpenRefuses checks that Open rejects options that a session cannot have.
func TestOpenRefuses(t *testing.T) {
	c := rig.Must[*client.Client](t)(client.New(client.Config{Endpoints: []string{"127.0.0.1:1"}}))
	defer c.Close()
	for _, g := range []client.Grant{{Grace: time.Second}, {RequestID: "r"}} {
		if _, err := c.Open(t.Context(), g); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%+v: %v", g, err)
		}
	}
}

// TestRunBacksOff checks that Run opens sessions at increasing intervals if each is lost
// immediately.
func TestRunBacksOff(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, other := r.Dial(client.Config{RenewAfter: 0.01}), r.Dial(client.Config{})
		ctx, cancel := context.WithTimeout(rig.Soon(t), time.Minute)
		defer cancel()
		n := 0
		err := c.Run(ctx, client.Grant{}, func(ctx context.Context, s *client.Session) error {
			n++
			if err := other.Revoke(ctx, s.Lease().Ref()); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		if n < 10 || n > 25 {
			t.Errorf("%d sessions in a minute; %v", n, err)
		}
	})
}
