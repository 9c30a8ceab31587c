package server

import (
	"context"

	"google.golang.org/grpc"

	"leasehold.dev/internal/member/metrics"
)

// calls is what every unary call passes on its way to a service. It is one interceptor: in a chain
// each would cost every call a closure, whether or not what it does is on.
type calls struct {
	tracer   *tracer
	rpcs     *metrics.Calls
	node     *node
	entrance *entrance
	doors    doors
	limits   rateLimit
}

// unary is a grpc.UnaryServerInterceptor.
func (c *calls) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	stats := c.rpcs.Begin(info.FullMethod)
	timed := c.tracer.begin(ctx, info.FullMethod)
	if timed != nil {
		ctx = timed
	}
	resp, err := c.enter(ctx, req, info, next)
	if timed != nil {
		timed.End(err)
	}
	stats.Done(err)
	return resp, err
}

// enter calls next if the member serves the cluster that the call names, has its state, and knows a
// caller that may make another call. The audit log has refusals of the rate, and those of the
// logins.
func (c *calls) enter(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	if err := c.node.refuseOthers(ctx); err != nil {
		return nil, err
	}
	if err := c.entrance.pass(ctx); err != nil {
		return nil, err
	}
	ctx, leave, err := c.doors.enter(ctx, req, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if leave != nil {
		defer leave()
	}
	if a := c.doors.audit; a != nil {
		return a.Unary(ctx, req, info, func(ctx context.Context, req any) (any, error) {
			if err := c.limits.admit(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, req)
		})
	}
	if err := c.limits.admit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}
