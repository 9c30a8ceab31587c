package direct

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// ErrNotSpoken means that the peer does not support this protocol. It may support gRPC.
var ErrNotSpoken = errors.New("direct: the peer does not support " + Protocol)

// Open opens a stream for a method on a connection. It sends the outgoing metadata of ctx. The
// stream owns the connection and closes it when ctx or the stream ends, or if Open fails. Open
// returns once the server has sent its greeting. If the server responds with anything else or
// closes the connection, the error is ErrNotSpoken. (A connection reset may also mean that the
// server does not support the protocol.)
func Open(
	ctx context.Context, c net.Conn, method string, codec encoding.CodecV2,
) (grpc.ClientStream, error) {
	s := &clientStream{ctx: ctx, c: c, in: reader{c: c}, codec: codec}
	s.close = sync.OnceFunc(func() { _ = c.Close() }) // ignore errors, because the stream has ended
	unhook := context.AfterFunc(ctx, s.close)
	s.end = func() { unhook(); s.close() }
	if err := s.begin(method); err != nil {
		s.end()
		if ctx.Err() != nil {
			err = status.FromContextError(ctx.Err()).Err()
		}
		return nil, err
	}
	return s, nil
}

// clientStream implements grpc.ClientStream. One goroutine can receive while another sends.
type clientStream struct {
	ctx   context.Context
	c     net.Conn
	codec encoding.CodecV2
	close func()
	end   func() // calls close and releases the context

	// The fields below belong to the receiving goroutine.
	in      reader
	header  head
	trailer head
	greeted bool  // the header has been received
	why     error // why the stream has ended; nil if it has not
}

func (s *clientStream) begin(method string) error {
	md, _ := metadata.FromOutgoingContext(s.ctx)
	text, err := encodeHead(md)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	var opening bytes.Buffer // sent in a single packet
	fmt.Fprintf(&opening, "%s %s\n", Protocol, method)
	_ = writeFrame(&opening, flagMetadata, mem.BufferSlice{mem.SliceBuffer(text)})
	_, err = s.c.Write(opening.Bytes())
	line := ""
	if err == nil {
		line, err = s.in.line(len(greeting))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errLongLine) {
		return ErrNotSpoken
	}
	if err == nil && line != Protocol {
		return ErrNotSpoken
	}
	return err
}

// Header implements grpc.ClientStream. Only the receiving goroutine may call it, and only after
// RecvMsg.
func (s *clientStream) Header() (metadata.MD, error) { return s.header, s.why }

// Trailer implements grpc.ClientStream.
func (s *clientStream) Trailer() metadata.MD { return s.trailer }

// CloseSend implements grpc.ClientStream.
func (s *clientStream) CloseSend() error { return writeFrame(s.c, flagMetadata, nil) }

// Context implements grpc.ClientStream.
func (s *clientStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ClientStream. It returns when the kernel has accepted the message. If it
// returns io.EOF, RecvMsg returns the actual error.
func (s *clientStream) SendMsg(m any) error {
	data, err := s.codec.Marshal(m)
	if err != nil {
		return status.Errorf(codes.Internal, "direct: encode: %v", err)
	}
	if writeFrame(s.c, flagMessage, data) != nil {
		return io.EOF
	}
	return nil
}

// RecvMsg implements grpc.ClientStream.
func (s *clientStream) RecvMsg(m any) error {
	for s.why == nil {
		done, err := s.receive(m)
		if err == nil && done {
			return nil
		}
		if err != nil {
			s.why = s.reason(err)
			s.end()
		}
	}
	return s.why
}

// reason converts an error to the error that RecvMsg returns.
func (s *clientStream) reason(err error) error {
	switch {
	case s.ctx.Err() != nil:
		return status.FromContextError(s.ctx.Err()).Err()
	case errors.Is(err, io.EOF) && s.trailer != nil:
		return io.EOF
	case status.Code(err) != codes.Unknown || s.trailer != nil:
		return err
	}
	return status.Errorf(codes.Unavailable, "connection lost: %v", err)
}

// receive reads one frame and reports whether it contained a message.
func (s *clientStream) receive(m any) (done bool, err error) {
	flags, size, err := s.in.head()
	switch {
	case err != nil:
		return false, err
	case flags == flagMessage && s.greeted:
		return true, s.in.message(size, s.codec, m)
	case flags != flagMetadata:
		return false, errFlags
	}
	md, err := s.in.metadata(size)
	if err != nil {
		return false, err
	}
	if !s.greeted {
		s.header, s.greeted = md, true
		return false, nil
	}
	ended, err := decodeEnd(md)
	if !ended {
		return false, errFlags
	}
	s.trailer = md
	if err == nil {
		err = io.EOF
	}
	return false, err
}
