package client

import (
	"context"
	"strings"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestPreviousAttemptError checks that a call whose context ends during an unanswered attempt
// returns the error of the previous attempt.
func TestPreviousAttemptError(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		tries := 0
		f.set(func() {
			f.answer = func(_ *fakeStream, r *pb.Request) []*pb.Response {
				if r.GetReadRange() == nil {
					return nil
				}
				if tries++; tries > 1 {
					return nil
				}
				return refuse(r, pb.Reason_REASON_UNAVAILABLE)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), ttl/9)
		defer cancel()
		_, err := c.Get(ctx, "k")
		want(t, err, context.DeadlineExceeded, ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), "says the fake") || tries != 2 {
			t.Errorf("after %d tries: %v", tries, err)
		}
	})
}

// TestCauses checks that the context of a lease is canceled with a cause that wraps both the
// lease's error and context.Canceled. If a call that uses the context fails, its error wraps both
// as well.
func TestCauses(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, _ *fake) {
		l := grant(t, c, Grant{})
		ctx := l.Context()
		if err := l.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, context.Cause(ctx), ErrReleased, context.Canceled)
		_, err := c.Get(ctx, "k")
		want(t, err, ErrReleased, context.Canceled)
	})
}
