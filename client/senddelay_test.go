package client

import (
	"sync"
	"testing"
	"testing/synctest"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
)

// TestAskTogether checks that callers that are answered together and immediately make new requests
// share messages.
func TestAskTogether(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		const callers, rounds = 64, 50
		var waiting []*pb.Request
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) (out []*pb.Response) {
				if waiting = append(waiting, r); len(waiting) < callers {
					return nil
				}
				for _, r := range waiting {
					out = append(out, f.obey(s, r)...)
				}
				waiting = nil
				return out
			}
		})
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range rounds {
					var err error
					if i%2 == 0 {
						_, err = c.Put(t.Context(), store.Put{Key: "k"})
					} else {
						_, err = c.Range(t.Context(), store.Range{Key: "k"})
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		synctest.Wait()
		if n := len(f.seen); n > callers*rounds/4 {
			t.Errorf("%d messages for %d calls", n, callers*rounds)
		}
	})
}

// TestSendDelayEnds checks that waiting for other callers hardly delays a single caller, and soon
// does not delay it at all.
func TestSendDelayEnds(t *testing.T) {
	l := newLink(0, nil, &fakeStream{ctx: t.Context()}, func() {})
	l.out.answered.Store(64)
	for i := range 8 {
		if err := l.submit(&call{kind: read, request: &pb.Request{}}); err != nil {
			t.Fatal(err)
		}
		l.delay()
		if m := l.take(); len(m.GetRequests()) != 1 {
			t.Fatalf("sent %v", m)
		}
		if i == 7 && l.out.answered.Load() > 0 {
			t.Errorf("%d are expected", l.out.answered.Load())
		}
	}
}
