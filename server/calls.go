package server

import (
	"context"

	"google.golang.org/grpc"

	"leasehold.dev/internal/audit"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/member/authn"
	"leasehold.dev/internal/member/metrics"
	"leasehold.dev/internal/member/timing"
)

// calls is the interceptor for all unary calls.
type calls struct {
	panics   *listen.Panics
	tracer   *timing.Tracer
	rpcs     *metrics.Calls
	node     *node
	entrance *entrance
	logins   *authn.Logins
	audit    *audit.Recorder // nil if there is no audit log
	limits   rateLimit
}

// unary is a grpc.UnaryServerInterceptor.
func (c *calls) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	stats := c.rpcs.Begin(info.FullMethod)
	timed := c.tracer.Begin(ctx, info.FullMethod)
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

// enter calls next on three conditions: this member belongs to the cluster named by the call, it
// has the cluster's state, and the logins and the rate limit accept the caller. The audit log
// records calls rejected by the rate limit, and rejected logins. A panic becomes an error.
func (c *calls) enter(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (_ any, err error) {
	defer c.panics.End(info.FullMethod, &err)
	if err := c.node.checkCluster(ctx); err != nil {
		return nil, err
	}
	if err := c.entrance.pass(ctx); err != nil {
		return nil, err
	}
	known, leave, err := c.logins.Enter(ctx, info.FullMethod)
	if err != nil {
		return nil, c.audit.Refused(ctx, req, info.FullMethod, err)
	}
	ctx = known
	if leave != nil {
		defer leave()
	}
	if c.audit != nil {
		return c.audit.Unary(ctx, req, info, func(ctx context.Context, req any) (_ any, err error) {
			defer c.panics.End(info.FullMethod, &err) // inside, so that the call is audited
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

// known is an intercept.Stream that authenticates the caller that opens a stream.
func (c *calls) known(
	s grpc.ServerStream, info *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	inner, leave, err := c.logins.Stream(s, info)
	if err != nil {
		err = c.audit.Refused(s.Context(), nil, info.FullMethod, err)
	}
	return inner, leave, err
}
