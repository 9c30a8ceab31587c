package native

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// readCall returns what answers a request that changes nothing, as the call by itself does;
// nil for other requests.
func (t *stream) readCall(q *request, r *pb.Request) rest {
	switch x := r.Body.(type) {
	case *pb.Request_Describe:
		q.long = x.Describe.GetKeys()
		return call(t.Describe, x.Describe)
	case *pb.Request_List:
		q.long = true
		return call(t.List, x.List)
	case *pb.Request_CheckToken:
		return call(t.CheckToken, x.CheckToken)
	default:
		return nil
	}
}

// writeCall returns what does a request that may change something, as the call by itself does,
// but once if it has a number; nil for other requests.
func (t *stream) writeCall(r *pb.Request, n number) rest {
	switch x := r.Body.(type) {
	case *pb.Request_Revoke:
		return callOnce(t.revokeOnce, x.Revoke, n)
	case *pb.Request_ChangeTtl:
		return callOnce(t.changeTTLOnce, x.ChangeTtl, n)
	case *pb.Request_HandOver:
		return callOnce(t.handOverOnce, x.HandOver, n)
	case *pb.Request_Resume:
		return callOnce(t.resumeOnce, x.Resume, n)
	case *pb.Request_Attach:
		return callOnce(t.attachOnce, x.Attach, n)
	case *pb.Request_Detach:
		return callOnce(t.detachOnce, x.Detach, n)
	default:
		return nil
	}
}

func call[Request, Response proto.Message](
	method func(context.Context, Request) (Response, error), r Request,
) rest {
	return func(ctx context.Context) (proto.Message, error) { return method(ctx, r) }
}

func callOnce[Request, Response proto.Message](
	method func(context.Context, Request, number) (Response, error), r Request, n number,
) rest {
	return func(ctx context.Context) (proto.Message, error) { return method(ctx, r, n) }
}
