package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
)

// TestCloseInBackOff checks that Close immediately ends a call that is waiting between attempts.
func TestCloseInBackOff(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		f.set(func() {
			f.answer = func(_ *fakeStream, r *pb.Request) []*pb.Response {
				return refuse(r, pb.Reason_REASON_UNAVAILABLE)
			}
		})
		over := make(chan error, 3)
		go func() { _, err := c.Get(context.Background(), "k"); over <- err }()
		go func() { _, err := c.Put(context.Background(), store.Put{Key: "k"}); over <- err }()
		go func() { over <- c.Revoke(context.Background(), leases.Ref{ID: 7}) }()
		pass(10 * time.Second) // so the delays are long
		synctest.Wait()
		at := time.Now()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for range cap(over) {
			want(t, <-over, ErrClosed)
		}
		if late := time.Since(at); late != 0 {
			t.Errorf("the last call ended %v after the client", late)
		}
	})
}
