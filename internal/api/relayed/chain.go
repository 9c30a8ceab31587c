package relayed

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	"leasehold.dev/internal/intercept"
)

// chains combines the interceptors for a relay's calls into one for unary calls and one for
// streams.
func (r *relay) chains() (grpc.UnaryServerInterceptor, intercept.Stream) {
	one := func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		ctx, err := r.o.Impersonate(r.ctx, ctx)
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
	many := func(
		s grpc.ServerStream, _ *grpc.StreamServerInfo,
	) (grpc.ServerStream, intercept.Leave, error) {
		ctx, err := r.o.Impersonate(r.ctx, s.Context())
		return &impersonated{s, ctx}, nil, err
	}
	return unaries(append(slices.Clone(r.o.Unary), one)),
		intercept.Chain(append(slices.Clone(r.o.Stream), many)...)
}

// impersonated is a stream with the context of the client that the relay is acting for.
type impersonated struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *impersonated) Context() context.Context { return s.ctx }

// unaries combines interceptors into one. The first interceptor is the outermost.
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
