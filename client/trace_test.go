package client

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
)

// traceKey is the context key under which a test stores its trace, as a tracing library would.
type traceKey struct{}

// TestTraceParent checks that each attempt of a request carries the trace from its context. An
// invalid trace is omitted. The request that opens the session carries no trace.
func TestTraceParent(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c := Config{TraceParent: func(ctx context.Context) string {
		text, _ := ctx.Value(traceKey{}).(string)
		return text
	}}
	inBubble(t, 1, c, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		first := true
		f.set(func() {
			answer := f.answer
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if first && r.GetPut() != nil {
					first = false
					return []*pb.Response{{Id: r.Id, Body: &pb.Response_Error{
						Error: &pb.Error{Reason: pb.Reason_REASON_UNAVAILABLE},
					}}}
				}
				return answer(s, r)
			}
		})
		texts := []string{good, "", good + "\xff", strings.Repeat("0", 1<<20)}
		for _, text := range texts {
			ctx := context.WithValue(t.Context(), traceKey{}, text)
			if _, err := c.Put(ctx, store.Put{Key: "k"}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		var sent []string
		for _, r := range f.requests() {
			if r.GetPut() != nil {
				sent = append(sent, r.Traceparent)
			} else if r.Traceparent != "" {
				t.Errorf("%v", r)
			}
		}
		if want := []string{good, good, "", "", ""}; !slices.Equal(sent, want) {
			t.Errorf("%q", sent)
		}
	})
}
