package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"leasehold.dev/internal/intercept"
)

// learnerGuard rejects the calls that learners do not serve in etcd. Our learners could serve all
// calls. But clients, and programs waiting for a promotion, rely on the rejection to recognize a
// learner.
type learnerGuard struct {
	identity
	node Node
}

// learning reports whether this member is a learner. As in etcd, a member that is missing from its
// own member list counts as a voter.
func (g learnerGuard) learning() bool {
	self, _ := g.node.View().Member(g.member)
	return self.Learner
}

// guard wraps each method of the service with a check, which runs after the interceptors.
func (g learnerGuard) guard(d grpc.ServiceDesc) *grpc.ServiceDesc {
	out := intercept.Inside(d, g.unary, g.stream)
	if d.ServiceName == pb.Maintenance_ServiceDesc.ServiceName {
		out.Streams = d.Streams // learners serve only one stream, the snapshot
	}
	return out
}

func (g learnerGuard) unary(context.Context) grpc.UnaryServerInterceptor {
	if g.learning() {
		return voterOnly
	}
	return nil
}

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
