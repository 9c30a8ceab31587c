package server

import (
	"context"
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	native "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
)

// limitsOfAlice returns what refuses alice's calls, and the context of one.
func limitsOfAlice(t *testing.T, list ...access.LimitChange) (limiting, context.Context) {
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
	return limiting{api.NewLimiter(func() *access.State { return s }, 9)}, ctx
}

// requests is a stream on which there is always one more request.
type requests struct {
	grpc.ServerStream
	ctx context.Context
}

func (s requests) Context() context.Context { return s.ctx }

func (requests) RecvMsg(any) error { return nil }

// open opens so many streams of a method that stay open together, and returns how many it could,
// and why not more.
func (l limiting) open(ctx context.Context, method string, n int) (opened int, err error) {
	if n == 0 {
		return 0, nil
	}
	info := &grpc.StreamServerInfo{FullMethod: method}
	_, leave, err := l.stream(requests{ctx: ctx}, info)
	if err != nil {
		return 0, err
	}
	opened, err = l.open(ctx, method, n-1)
	return opened + 1, errors.Join(err, leave(nil))
}

// Goal: of streams there are as many open as the limit; of those that carry renewals as many again,
// for connections that are dead; and each is given back when it ends. Method: streams within each
// other, twice.
func TestLimitedStreams(t *testing.T) {
	l, ctx := limitsOfAlice(t, access.LimitChange{What: access.Streams, Most: 2})
	for range 2 {
		for method, want := range map[string]int{
			native.StreamService_Open_FullMethodName: 4, pb.Lease_LeaseKeepAlive_FullMethodName: 4,
			pb.Watch_Watch_FullMethodName: 2, native.StoreService_Watch_FullMethodName: 2,
		} {
			n, err := l.open(ctx, method, 6)
			if n != want || status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%s: %d streams, then %v, want %d", method, n, err, want)
			}
			if n, err := l.open(ctx, method, want); n != want || err != nil {
				t.Errorf("%s: %d streams, %v, want all %d", method, n, err, want)
			}
		}
	}
}

// Goal: neither a renewal nor a login is refused because of a rate or a size, by any call. Of the
// streams of many requests, those of which each counts are not counted twice. Method: the calls of
// alice, who has asked for all that she may; and another call, which is refused.
func TestRenewalsAreNotLimited(t *testing.T) {
	l, ctx := limitsOfAlice(t, access.LimitChange{What: access.Rate, Most: 1},
		access.LimitChange{What: access.RequestBytes, Most: 10})
	unary := func(method string, req any) error {
		_, err := l.unary(ctx, req, &grpc.UnaryServerInfo{FullMethod: method},
			func(context.Context, any) (any, error) { return nil, nil })
		return err
	}
	received := func(method string, m any) error {
		info := &grpc.StreamServerInfo{FullMethod: method}
		s, leave, err := l.stream(requests{ctx: ctx}, info)
		if err != nil {
			return err
		}
		return leave(s.RecvMsg(m))
	}
	put := &pb.PutRequest{Key: []byte("k")}
	if err := unary(pb.KV_Put_FullMethodName, put); err != nil {
		t.Fatal(err)
	}
	renewal := &native.RenewRequest{Leases: []*native.LeaseRef{{Id: 1 << 40}, {Id: 1 << 41}}}
	login := &pb.AuthenticateRequest{Name: "alice", Password: "of some length"}
	for what, err := range map[string]error{
		"renewals":   unary(native.LeaseService_Renew_FullMethodName, renewal),
		"a login":    unary(pb.Auth_Authenticate_FullMethodName, login),
		"a stream":   received(native.StreamService_Open_FullMethodName, &native.ClientMessage{}),
		"keep-alive": received(pb.Lease_LeaseKeepAlive_FullMethodName, &pb.LeaseKeepAliveRequest{}),
		"watches":    received(pb.Watch_Watch_FullMethodName, &pb.WatchRequest{}),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"a put":        unary(pb.KV_Put_FullMethodName, put),
		"a native put": unary(native.StoreService_Put_FullMethodName, &native.PutRequest{}),
		"a watch":      received(native.StoreService_Watch_FullMethodName, &native.WatchRequest{}),
		"a large put": unary(pb.KV_Put_FullMethodName, &pb.PutRequest{
			Key: []byte("a key that is long"),
		}),
	} {
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v", what, err)
		}
	}
}
