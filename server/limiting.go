package server

import (
	"context"
	"errors"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	native "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
)

// limiting refuses the calls of principals that have, or ask for, more than they may. It comes
// after the logins, which say who calls. What is asked for on a stream of many requests is counted
// where they are taken.
type limiting struct{ *api.Limiter }

// unlimited are the calls that no limit of requests is for: a lease that its holder renews must not
// end because of one, nor must a login that renewing needs.
var unlimited = map[string]bool{
	native.LeaseService_Renew_FullMethodName: true,
	pb.Auth_Authenticate_FullMethodName:      true,
	native.StreamService_Open_FullMethodName: true,
	// What it carries is counted where it is asked for.
	native.RelayService_Relay_FullMethodName: true,
	pb.Lease_LeaseKeepAlive_FullMethodName:   true,
	// Each watch counts on it, not the stream.
	pb.Watch_Watch_FullMethodName: true,
}

// unary is a grpc.UnaryServerInterceptor.
func (l limiting) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	ctx = api.WithLimiter(ctx, l.Limiter)
	if !unlimited[info.FullMethod] {
		if err := api.Admit(ctx, func() int { return proto.Size(req.(proto.Message)) }); err != nil {
			return nil, limitError(info.FullMethod, err)
		}
	}
	return next(ctx, req)
}

// limitError is an error as the API of a method tells it.
func limitError(method string, err error) error {
	if strings.HasPrefix(method, "/leasehold.") {
		return api.NativeError(err, api.Reason(err))
	}
	return api.Error(err)
}

// stream is a grpc.StreamServerInterceptor.
func (l limiting) stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	s := &limitedStream{
		ServerStream: stream, call: info.FullMethod,
		ctx: api.WithLimiter(stream.Context(), l.Limiter),
	}
	share := api.ShareOf(s.ctx, access.Streams)
	defer share.Close()
	take := share.Take
	switch info.FullMethod {
	case native.StreamService_Open_FullMethodName, pb.Lease_LeaseKeepAlive_FullMethodName,
		native.RelayService_Relay_FullMethodName:
		take = share.TakeRenewing
	}
	if err := take(); err != nil {
		return limitError(info.FullMethod, err)
	}
	return next(srv, s)
}

// limitedStream is a stream of which the first request counts, if it has only that.
type limitedStream struct {
	grpc.ServerStream
	ctx  context.Context
	call string
}

// Context implements grpc.ServerStream.
func (s *limitedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *limitedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil || unlimited[s.call] {
		return err
	}
	r, ok := m.(proto.Message)
	if !ok {
		return nil
	}
	if err := api.Admit(s.ctx, func() int { return proto.Size(r) }); err != nil {
		return limitError(s.call, err)
	}
	return nil
}

// countRefusal counts a command that a limit has refused where it was applied.
func (n *node) countRefusal(err error) {
	if err == nil {
		return
	}
	if e := new(access.LimitError); errors.As(err, &e) {
		n.limits.Refused(e)
	}
}
