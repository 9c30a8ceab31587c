package server

import (
	"cmp"
	"context"
	"errors"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	native "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/replica"
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
	stream grpc.ServerStream, info *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	s := &limitedStream{
		ServerStream: stream, call: info.FullMethod,
		ctx: api.WithLimiter(stream.Context(), l.Limiter),
	}
	share := api.ShareOf(s.ctx, access.Streams)
	take := share.Take
	switch info.FullMethod {
	case native.StreamService_Open_FullMethodName, pb.Lease_LeaseKeepAlive_FullMethodName,
		native.RelayService_Relay_FullMethodName:
		take = share.TakeRenewing
	}
	if err := take(); err != nil {
		share.Close()
		return nil, nil, limitError(info.FullMethod, err)
	}
	return s, func(err error) error {
		share.Close()
		return err
	}, nil
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

// mayExceed reports whether a command may be refused by a limit, since one for the same principal
// was not long ago. Then a confirmed read decides it. In the log, what a tenant asks for over and
// over again would have all others wait for the disk.
func (n *node) mayExceed(c fsm.Command) bool {
	switch fsm.Inner(c).(type) {
	case *fsm.Grant, *fsm.Put, *fsm.Txn:
		by, ok := c.(*fsm.By)
		return ok && n.limits.IsFull(countsFor(by))
	default:
		return false
	}
}

// countsFor returns the principal that has what a command makes. Grants in a transaction may be for
// others than its caller.
func countsFor(by *fsm.By) string {
	if g, ok := fsm.Inner(by).(*fsm.Grant); ok {
		return cmp.Or(g.Terms.Principal, by.Caller.User)
	}
	return by.Caller.User
}

// decide returns the result of a command that needs no place in the log, if it needs none.
func (n *node) decide(ctx context.Context, cmd fsm.Command) (res fsm.Result, done bool, err error) {
	r := &replica.Repeat{Command: cmd, Limits: true}
	if err := n.readRepeat(ctx, r); err != nil {
		return fsm.Result{}, false, err
	}
	n.countRefusal(r.Result.Err)
	return r.Result, n.decided(r), nil
}

// decided notes what came of a command for a principal that may have had too much, and reports
// whether it needs no place in the log.
func (n *node) decided(r *replica.Repeat) bool {
	if !r.Done {
		n.limits.HasRoom(countsFor(r.Command.(*fsm.By)))
	}
	return r.Done
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
