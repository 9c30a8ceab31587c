package relayed

import (
	"context"
	"slices"

	"google.golang.org/grpc"
)

// chains returns what the calls of a relay pass, each as one interceptor.
func (r *relay) chains() (grpc.UnaryServerInterceptor, grpc.StreamServerInterceptor) {
	one := func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		if err := r.o.Speaks(r.ctx, ctx); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
	many := func(
		srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
	) error {
		if err := r.o.Speaks(r.ctx, s.Context()); err != nil {
			return err
		}
		return next(srv, s)
	}
	return unaries(append(slices.Clone(r.o.Unary), one)),
		streams(append(slices.Clone(r.o.Stream), many))
}

// unaries makes one interceptor of many, of which the first is the outermost.
func unaries(list []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		for _, outer := range slices.Backward(list) {
			inner := next
			next = func(ctx context.Context, req any) (any, error) {
				return outer(ctx, req, info, inner)
			}
		}
		return next(ctx, req)
	}
}

// streams is unaries for streams.
func streams(list []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(
		srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
	) error {
		for _, outer := range slices.Backward(list) {
			inner := next
			next = func(srv any, s grpc.ServerStream) error { return outer(srv, s, info, inner) }
		}
		return next(srv, s)
	}
}
