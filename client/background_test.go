package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestReleaseWhileClosing checks that a release that starts while Close is waiting for other
// releases gets a context that has already ended, so that it does not block its caller.
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
