package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
)

// TestOldLoginIsTriedAgain checks that calls in flight do not fail because users or roles change.
// If a member refuses a put, a watch or a cache for that reason, it is retried on the same stream.
func TestOldLoginIsTriedAgain(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		held := grant(t, c, Grant{})
		tries := 0
		answer := func() {
			tries = 0
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if tries++; tries < 4 {
					return refuse(r, pb.Reason_REASON_UNAUTHENTICATED)
				}
				return f.obey(s, r)
			}
		}
		f.set(answer)
		if _, err := c.Put(t.Context(), store.Put{Key: "k"}); err != nil || tries != 4 {
			t.Errorf("a put, after %d tries: %v", tries, err)
		}
		f.set(answer)
		w, err := c.Watch(t.Context(), store.Watch{Key: "k"})
		if err != nil || tries != 4 {
			t.Fatalf("a watch, after %d tries: %v", tries, err)
		}
		w.Close()
		f.set(answer)
		k, err := c.linkCache(held, &fakeCache{})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		pass(time.Minute)
		f.set(func() {
			if tries < 4 {
				t.Errorf("a cache was offered %d times", tries)
			}
		})
	})
}

// TestRefusedStreamDidNothing checks that the requests on a stream had no effect if the stream was
// refused before the member's first message. If the stream ends later, they may have had an effect.
func TestRefusedStreamDidNothing(t *testing.T) {
	for _, opened := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		l := newLink(0, nil, &fakeStream{ctx: ctx}, cancel)
		var result error
		c := &call{
			kind: repeated, request: &pb.Request{Body: &pb.Request_Revoke{}},
			done: func(_ *pb.Response, err error) { result = err },
		}
		if err := l.submit(c); err != nil {
			t.Fatal(err)
		}
		l.take() // marks it as sent
		if opened {
			l.deliver(nil)
		}
		l.fail(status.Error(codes.Unauthenticated, "no"), func(*call) bool { return true })
		if broken := new(linkError); !errors.As(result, &broken) || broken.sent != opened {
			t.Errorf("opened %v: %+v", opened, result)
		}
	}
}
