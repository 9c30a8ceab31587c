package client

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
)

// shared is the state that all of a client's connections share: its login, its cluster, and each
// endpoint's protocol.
type shared struct {
	pin    pin
	logins logins
	ways   ways
}

// openStream opens the stream of leasehold.v1 by calling begin.
func (s *shared) openStream(
	ctx context.Context, conn grpc.ClientConnInterface,
	begin func(context.Context) (grpc.ClientStream, error),
) (pb.StreamService_OpenClient, error) {
	stream, err := s.open(ctx, conn, begin)
	if err != nil {
		return nil, err
	}
	return &grpc.GenericClientStream[pb.ClientMessage, pb.ServerMessage]{ClientStream: stream}, nil
}

// open opens a stream by calling begin. The metadata contains the client's credential and cluster
// ID.
func (s *shared) open(
	ctx context.Context, conn grpc.ClientConnInterface,
	begin func(context.Context) (grpc.ClientStream, error),
) (grpc.ClientStream, error) {
	ctx, token, err := s.logins.context(ctx, conn)
	if err != nil {
		return nil, err
	}
	stream, err := begin(s.pin.context(ctx))
	if err != nil {
		return nil, err
	}
	return &checkedStream{ClientStream: stream, shared: s, token: token}, nil
}

// checkedStream is a stream that checks the cluster ID before it returns the first message. The
// error at its end shows whether the credential was accepted.
type checkedStream struct {
	grpc.ClientStream
	shared  *shared
	token   string
	checked bool // used only by the receiver
}

// RecvMsg implements grpc.ClientStream.
func (j *checkedStream) RecvMsg(m any) error {
	err := j.ClientStream.RecvMsg(m)
	if !j.checked {
		j.checked = true
		md, _ := j.Header() // the header is present unless the stream has failed
		if other := j.shared.pin.check(md); other != nil {
			other.refused = err != nil
			return other
		}
	}
	return j.shared.logins.checkError(j.token, err)
}

// stream returns an interceptor that applies open to streams of any service.
func (s *shared) stream() grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		next grpc.Streamer, options ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return s.open(ctx, conn, func(ctx context.Context) (grpc.ClientStream, error) {
			return next(ctx, d, conn, method, options...)
		})
	}
}

// call returns the equivalent interceptor for unary calls.
func (s *shared) call() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		next grpc.UnaryInvoker, options ...grpc.CallOption,
	) error {
		if method == methodLogin {
			return next(ctx, method, req, reply, conn, options...)
		}
		ctx, token, err := s.logins.context(ctx, conn)
		if err != nil {
			return err
		}
		return s.logins.checkError(token, next(s.pin.context(ctx), method, req, reply, conn, options...))
	}
}

// checkError handles an error that rejects the credential. It returns other errors unchanged.
func (l *logins) checkError(token string, err error) error {
	if status.Code(err) == codes.Unauthenticated {
		return l.refused(token, err)
	}
	return err
}
