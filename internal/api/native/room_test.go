package native

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/listen"
)

// unread is a response that its client has not read.
type unread int

func (n unread) Size() int { return int(n) }

// TestLeasesReserveMemory checks that a call that returns several leases, or a lease with its keys,
// waits for memory before it builds the response. A call with a small response does not. Here, an
// unread response takes up all of the connection's memory.
func TestLeasesReserveMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service(newNode(), Options{})
		id := grant(t, s, &pb.GrantRequest{TtlMs: 60_000}).Lease.Id
		all := listen.NewAnswers(slog.New(slog.DiscardHandler))
		full, err := all.Unary(nil)(t.Context(), nil, nil, func(context.Context, any) (any, error) {
			return unread(32 << 20), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			call  func(context.Context) (any, error)
			waits bool
		}{
			"a list": {func(ctx context.Context) (any, error) {
				return s.List(ctx, &pb.ListRequest{})
			}, true},
			"a lease with its keys": {func(ctx context.Context) (any, error) {
				return s.Describe(ctx, &pb.DescribeRequest{Id: id, Keys: true})
			}, true},
			"a lease": {func(ctx context.Context) (any, error) {
				return s.Describe(ctx, &pb.DescribeRequest{Id: id})
			}, false},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := all.Unary(nil)(ctx, nil, nil, func(ctx context.Context, _ any) (any, error) {
				return c.call(ctx)
			})
			cancel()
			waits := status.Code(err) == codes.DeadlineExceeded
			if waits != c.waits || err != nil && !waits {
				t.Errorf("%s: waits: %v, %v", name, waits, err)
			}
		}
		runtime.KeepAlive(full)
	})
}
