package server

import (
	"context"
	"errors"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	native "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/intercept"
)

// rateLimit rejects calls of principals that exceed their rate. It runs after the logins
// interceptor, which identifies the caller. Requests on a multiplexed stream are counted where they
// are read.
type rateLimit struct{ *api.RateLimiter }

// rateExempt contains the calls that do not count toward the limit. A client must never lose a
// lease because of the limit, and it must be able to log in to renew.
var rateExempt = map[string]bool{
	native.LeaseService_Renew_FullMethodName: true,
	pb.Auth_Authenticate_FullMethodName:      true,
	pb.Lease_LeaseKeepAlive_FullMethodName:   true,
	// On these streams, each request or watch counts, not the stream.
	native.StreamService_Open_FullMethodName: true,
	native.RelayService_Relay_FullMethodName: true,
	pb.Watch_Watch_FullMethodName:            true,
}

// admit returns an error in the form used by the call's API if the call exceeds the limit.
func (l rateLimit) admit(ctx context.Context, method string) error {
	if rateExempt[method] {
		return nil
	}
	err := l.Admit(ctx)
	switch {
	case err == nil:
		return nil
	case strings.HasPrefix(method, "/leasehold."):
		return api.NativeError(err, api.Reason(err))
	default:
		return api.Error(err)
	}
}

// stream is an intercept.Stream.
func (l rateLimit) stream(
	s grpc.ServerStream, info *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	if err := l.admit(s.Context(), info.FullMethod); err != nil {
		return nil, nil, err
	}
	return s, nil, nil
}

// countRefusal counts a command that was rejected because of a limit when it was applied.
func (n *node) countRefusal(err error) {
	if err == nil {
		return
	}
	if e := new(access.LimitError); errors.As(err, &e) {
		n.limits.Refused(e)
	}
}
