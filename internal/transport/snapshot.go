package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"

	"google.golang.org/grpc"
)

// maxHeader is the maximum size of a snapshot's header.
const maxHeader = 1 << 20

// SendSnapshot sends header, of at most 1 MiB, and the chunks that next returns until io.EOF. It
// uses a separate connection. It returns nil once the other side's handler has confirmed
// everything, and a *remoteError if that handler returns an error. If next fails, SendSnapshot
// returns that error, and the other side sees a broken connection. Each chunk is in use until the
// next call of next. 256 KiB to 1 MiB is a good size for a chunk.
func (t *Transport) SendSnapshot(
	ctx context.Context, to uint64, header []byte, next func() ([]byte, error),
) error {
	l := t.link(to)
	if l == nil {
		return errUnknown
	}
	if len(header) > maxHeader {
		return tooLarge(len(header))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unhook := context.AfterFunc(l.ctx, func() {
		if t.ctx.Err() != nil {
			cancel(ErrClosed)
		} else {
			cancel(errUnknown)
		}
	})
	defer unhook()
	s, stream, format, err := l.openSnapshot(ctx)
	if err == nil {
		defer s.close()
		err = pour(stream, format, header, next)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// openSnapshot opens a stream at the first URL that works.
func (l *link) openSnapshot(
	ctx context.Context,
) (s session, stream grpc.ClientStream, format uint8, err error) {
	var a answer
	err = fmt.Errorf("transport: member %s has no URL", l.name())
	for _, u := range l.urls {
		if s, err = connect(ctx, u, l.t.cfg.Way); err != nil {
			continue
		}
		if stream, a, err = l.t.greet(ctx, s, hello{to: l.id}, &snapshotDesc); err == nil {
			return s, stream, a.format, nil
		}
		s.close()
	}
	return s, nil, 0, err
}

// pour sends everything and waits for the result.
func pour(
	stream grpc.ClientStream, format uint8, header []byte, next func() ([]byte, error),
) error {
	for chunk, err := header, error(nil); ; chunk, err = next() {
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err // if the caller cancels the context, the stream breaks
		}
		frame, err := single(format, chunk)
		if err != nil {
			return err
		}
		if err := stream.SendMsg(frame); errors.Is(err, io.EOF) {
			break // the stream has ended; RecvMsg will return the error
		} else if err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := stream.RecvMsg(new(blob)); err != nil {
		return parseRefusal(err, stream.Trailer())
	}
	return nil
}

// serveSnapshot serves one stream of Snapshot.
func (t *Transport) serveSnapshot(stream grpc.ServerStream) error {
	h, format, err := t.welcome(stream.Context())
	if err != nil {
		return say(stream, err)
	}
	if err := stream.SendHeader(answer{t.instance(), format}.header()); err != nil {
		return err
	}
	next := func() ([]byte, error) {
		var frame blob
		if err := stream.RecvMsg(&frame); err != nil {
			return nil, err // returned as io.EOF only if the sender has declared the end
		}
		return unwrap(format, frame.data)
	}
	header, err := next()
	if err == nil {
		err = t.cfg.Handler.Snapshot(stream.Context(), h.from, header, next)
	}
	if err != nil {
		return say(stream, err)
	}
	return stream.SendMsg(new(blob))
}

// Describe requests the list of members from the member that listens at u. The caller need not be a
// member itself; see [Handler.Describe]. way is as in Config.
func Describe(ctx context.Context, u url.URL, way Way) ([]byte, error) {
	s, err := connect(ctx, u, way)
	if err != nil {
		return nil, err
	}
	defer s.close()
	answer, err := s.unary(ctx, describeDesc.MethodName, new(blob))
	if err != nil {
		return nil, err
	}
	return answer.data, nil
}

func serveDescribe(
	srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
) (any, error) {
	t := srv.(*Transport)
	if err := decode(new(blob)); err != nil {
		return nil, err
	}
	if err := t.proven(ctx); err != nil {
		return nil, say(calledUnary{ctx}, err)
	}
	return &blob{data: t.cfg.Handler.Describe()}, nil
}
