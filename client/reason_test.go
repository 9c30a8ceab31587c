package client

import (
	"context"
	"strings"
	"testing"

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
