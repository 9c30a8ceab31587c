package etcd

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/lease"
)

// unread is a response that its client has not read.
type unread int

func (n unread) Size() int { return int(n) }

// TestLeasesReserveMemory checks that a call that returns many leases, or the keys of a lease,
// waits for memory before it builds the response.
func TestLeasesReserveMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		s := &leaseService{node: n}
		grant := func(id lease.ID) {
			if _, err := n.Propose(t.Context(), &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 60_000}}); err != nil {
				t.Fatal(err)
			}
		}
		grant(1)
		for _, x := range []struct {
			name   string
			unread unread
			leases lease.ID
			call   func(context.Context) (any, error)
			waits  bool
		}{
			{"few leases", 28 << 20, 1, func(ctx context.Context) (any, error) {
				return s.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
			}, false},
			{"a lease", 32 << 20, 1, func(ctx context.Context) (any, error) {
				return s.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 1})
			}, false},
			{"a lease with its keys", 32 << 20, 1, func(ctx context.Context) (any, error) {
				return s.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 1, Keys: true})
			}, true},
			{"many leases", 28 << 20, 40_000, func(ctx context.Context) (any, error) {
				return s.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
			}, true},
		} {
			for id := lease.ID(2); id <= x.leases; id++ {
				grant(id)
			}
			all := listen.NewAnswers(slog.New(slog.DiscardHandler))
			full, err := all.Unary(nil)(t.Context(), nil, nil, func(context.Context, any) (any, error) {
				return x.unread, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = all.Unary(nil)(ctx, nil, nil, func(ctx context.Context, _ any) (any, error) {
				return x.call(ctx)
			})
			cancel()
			waits := status.Code(err) == codes.DeadlineExceeded
			if waits != x.waits || err != nil && !waits {
				t.Errorf("%s: waits: %v, %v", x.name, waits, err)
			}
			runtime.KeepAlive(full)
		}
	})
}
