package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestRevokeAfterContext checks that Revoke returns immediately if its context has ended, and that
// Close waits for the cluster's response.
func TestRevokeAfterContext(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		l := grant(t, c, Grant{})
		answered := false
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if r.GetRevoke() == nil {
					return f.obey(s, r)
				}
				time.AfterFunc(time.Second, func() {
					answered = true
					s.say(f.obey(s, r)...)
				})
				return nil
			}
		})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		want(t, l.Revoke(ended), context.Canceled)
		is(t, l, ErrReleased)
		if d := time.Since(start); d != 0 {
			t.Errorf("Revoke returned after %v", d)
		}
		if err := c.Close(); err != nil || !answered {
			t.Errorf("Close: %v; lease revoked: %v", err, answered)
		}
		if err := l.Revoke(ended); err == nil {
			t.Error("Revoke succeeds on a closed client")
		}
	})
}

// TestReleaseWhileClosing checks that a release that starts while Close is waiting for other
// releases gets a context that has already ended, so it does not block its caller.
func TestReleaseWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, end := newReleases(), make(chan struct{})
		r.start(func(context.Context) { <-end })
		go r.close()
		synctest.Wait()
		r.start(func(ctx context.Context) {
			if ctx.Err() == nil {
				t.Error("the context has not ended")
			}
		})
		close(end)
	})
}

// TestCloseTimeout checks that Close waits no longer than closeTimeout if the cluster does not
// answer.
func TestCloseTimeout(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		l := grant(t, c, Grant{TTL: time.Hour})
		f.set(func() { f.answer = silent })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, l.Revoke(ctx), ErrUnknownOutcome, context.DeadlineExceeded)
		start := time.Now()
		if err := c.Close(); err != nil || time.Since(start) != closeTimeout {
			t.Errorf("Close took %v: %v", time.Since(start), err)
		}
	})
}
