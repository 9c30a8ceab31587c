package etcd

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"leasehold.dev/internal/intercept"
)

// learnerGuard refuses what etcd's learners do not serve. Our learners could serve everything, but
// clients, and programs that wait for a promotion, recognize a learner by the refusal.
type learnerGuard struct {
	identity
	node Reader
}

// learning reports whether this member is a learner. A member that is not in its own list counts as
// a voter, as in etcd.
func (g learnerGuard) learning() bool {
	self, _ := g.node.View().Member(g.member)
	return self.Learner
}

// guard returns the service with a check before each of its methods, inside the interceptors.
func (g learnerGuard) guard(d grpc.ServiceDesc) *grpc.ServiceDesc {
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		d.Methods[i].Handler = g.unary(d.Methods[i].Handler)
	}
	d.Streams = slices.Clone(d.Streams)
	for i, s := range d.Streams {
		// A snapshot is the one stream that a learner serves.
		if d.ServiceName != pb.Maintenance_ServiceDesc.ServiceName || s.StreamName != "Snapshot" {
			d.Streams[i].Handler = intercept.Stream(g.stream).Around(s.Handler)
		}
	}
	return &d
}

func (g learnerGuard) unary(next grpc.MethodHandler) grpc.MethodHandler {
	return func(
		srv any, ctx context.Context, dec func(any) error, i grpc.UnaryServerInterceptor,
	) (any, error) {
		if g.learning() {
			i = within(i, voterOnly)
		}
		return next(srv, ctx, dec, i)
	}
}

// voterOnly is an interceptor that passes only what a learner serves.
func voterOnly(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	switch r := req.(type) {
	case *pb.StatusRequest:
	case *pb.RangeRequest:
		if !r.Serializable {
			return nil, rpctypes.ErrGRPCNotSupportedForLearner
		}
	default:
		return nil, rpctypes.ErrGRPCNotSupportedForLearner
	}
	return next(ctx, req)
}

// stream is an intercept.Stream.
func (g learnerGuard) stream(
	s grpc.ServerStream, _ *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	if g.learning() {
		return nil, nil, rpctypes.ErrGRPCNotSupportedForLearner
	}
	return s, nil, nil
}
