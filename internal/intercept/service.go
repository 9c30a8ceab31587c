package intercept

import (
	"context"
	"slices"

	"google.golang.org/grpc"
)

// Inside returns a service with interceptors around its methods. These run inside the server's
// interceptors, which therefore see which calls are rejected. unary returns the interceptor for a
// call, or nil if there is none. streams may be nil.
func Inside(
	d grpc.ServiceDesc, unary func(context.Context) grpc.UnaryServerInterceptor, streams Stream,
) *grpc.ServiceDesc {
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		next := d.Methods[i].Handler
		d.Methods[i].Handler = func(
			srv any, ctx context.Context, dec func(any) error, outer grpc.UnaryServerInterceptor,
		) (any, error) {
			if inner := unary(ctx); inner != nil {
				outer = within(outer, inner)
			}
			return next(srv, ctx, dec, outer)
		}
	}
	if streams != nil {
		d.Streams = slices.Clone(d.Streams)
		for i := range d.Streams {
			d.Streams[i].Handler = streams.Around(d.Streams[i].Handler)
		}
	}
	return &d
}

// within returns an interceptor that runs inner inside outer. outer may be nil.
func within(outer, inner grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if outer == nil {
		return inner
	}
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		return outer(ctx, req, info, func(ctx context.Context, req any) (any, error) {
			return inner(ctx, req, info, next)
		})
	}
}
