package server

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	native "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
)

// limitsOfAlice returns a rate limiter with limits for alice, and a context for alice's calls.
func limitsOfAlice(t *testing.T, list ...access.LimitChange) (rateLimit, context.Context) {
	t.Helper()
	s := (*access.State)(nil)
	do := func(next *access.State, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	do(s.AddUser("root", nil, true))
	do(s.GrantRole("root", "root"))
	do(s.AddUser("alice", nil, true))
	do(s.Enable())
	do(s.SetLimits(access.Holder{Kind: access.OfUser, Name: "alice"}, list))
	ctx := api.WithCaller(t.Context(), access.Caller{User: "alice", Revision: 9})
	return rateLimit{api.NewRateLimiter(func() *access.State { return s }, 9)}, ctx
}

// opened is a server stream with the context of a caller.
type opened struct {
	grpc.ServerStream
	ctx context.Context
}

func (s opened) Context() context.Context { return s.ctx }

// TestRenewalsAreNotLimited checks that a rate limit never rejects a renewal or a login. Opening a
// stream that carries many requests is not counted, because each of its requests is.
func TestRenewalsAreNotLimited(t *testing.T) {
	l, ctx := limitsOfAlice(t, access.LimitChange{What: access.Rate, Most: 1})
	unary := func(method string) error {
		return l.admit(ctx, method)
	}
	stream := func(method string) error {
		_, _, err := l.stream(opened{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: method})
		return err
	}
	if err := unary(pb.KV_Put_FullMethodName); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"renewals":   unary(native.LeaseService_Renew_FullMethodName),
		"a login":    unary(pb.Auth_Authenticate_FullMethodName),
		"a stream":   stream(native.StreamService_Open_FullMethodName),
		"keep-alive": stream(pb.Lease_LeaseKeepAlive_FullMethodName),
		"watches":    stream(pb.Watch_Watch_FullMethodName),
		"a relay":    stream(native.RelayService_Relay_FullMethodName),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"a put":        unary(pb.KV_Put_FullMethodName),
		"a native put": unary(native.StoreService_Put_FullMethodName),
		"a watch":      stream(native.StoreService_Watch_FullMethodName),
	} {
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v", what, err)
		}
	}
}
