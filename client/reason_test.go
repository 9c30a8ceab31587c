package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestReasonOfEarlierTry: a call whose context ends while a try has no answer tells what a member
// has said to the try before.
func TestReasonOfEarlierTry(t *testing.T) {
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

// TestReadable: the error of a call that was given up names the call and the reason, as a sentence,
// and is the program's own reason and context.Canceled.
func TestReadable(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		f.set(func() { f.answer = silent })
		own := errors.New("the user went home")
		ctx, cancel := context.WithCancelCause(t.Context())
		pass(time.Millisecond)
		cancel(own)
		_, err := c.Get(ctx, "k")
		want(t, err, own, context.Canceled)
		if got := err.Error(); got != `client: range "k": the user went home` {
			t.Errorf("it reads %q", got)
		}
	})
}

// TestCauses: the context of a lease ends with a cause that is the lease's own and
// context.Canceled, and so do the calls that use it.
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
