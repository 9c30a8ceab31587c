package relayed

import (
	"context"
	"errors"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/channel"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/listen"
)

// stream is the server stream of one call, carried by a channel.
type stream struct {
	ctx     context.Context
	codec   encoding.CodecV2
	channel *channel.Channel
	method  string
	done    func()          // called when the call ends
	call    *intercept.Call // nil for a unary call

	mu      sync.Mutex // guards the following fields
	header  metadata.MD
	sent    bool // the header has been sent
	trailer metadata.MD
}

var _ grpc.ServerStream = (*stream)(nil)

// Context implements grpc.ServerStream.
func (s *stream) Context() context.Context { return s.ctx }

// SetHeader implements grpc.ServerStream.
func (s *stream) SetHeader(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent {
		return errors.New("relayed: the header was already sent")
	}
	s.header = metadata.Join(s.header, md)
	return nil
}

// SendHeader implements grpc.ServerStream.
func (s *stream) SendHeader(md metadata.MD) error {
	if err := s.SetHeader(md); err != nil {
		return err
	}
	s.sendHeader()
	return nil
}

// sendHeader sends the header if it has not been sent yet.
func (s *stream) sendHeader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sent {
		s.sent = true
		s.channel.SendHeader(&pb.RelayHeader{Headers: fieldsOf(s.header)})
	}
}

// SetTrailer implements grpc.ServerStream.
func (s *stream) SetTrailer(md metadata.MD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
}

// SendMsg implements grpc.ServerStream. The message counts as unread until the relay has room for
// all of it.
func (s *stream) SendMsg(m any) error {
	s.sendHeader()
	data, err := s.codec.Marshal(m)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	whole := data.MaterializeToBuffer(mem.NopBufferPool{})
	data.Free()
	defer whole.Free()
	return s.failed(s.channel.SendCopy(s.ctx, whole.ReadOnlyData(), func(bytes int) {
		listen.Wrote(s.ctx, bytes)
	}))
}

// RecvMsg implements grpc.ServerStream.
func (s *stream) RecvMsg(m any) error {
	b, err := s.channel.Recv(s.ctx)
	if err != nil {
		return s.failed(err)
	}
	if err := s.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m); err != nil {
		return status.Errorf(codes.Internal, "leasehold: cannot decode a message: %v", err)
	}
	return nil
}

// failed converts an error to the form returned by gRPC streams.
func (s *stream) failed(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return err
}

// serve serves the call until it ends or pauses.
func (s *stream) serve() {
	if paused, err := s.call.Serve(); !paused {
		s.end(err)
	}
}

// end ends the channel, reporting the result of the call.
func (s *stream) end(err error) {
	defer s.done()
	s.mu.Lock()
	unsent := !s.sent && len(s.header) > 0
	s.mu.Unlock()
	if unsent {
		s.sendHeader()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.channel.End(endOf(err, s.trailer))
}

// endOf returns the message that reports the result of a call.
func endOf(err error, trailer metadata.MD) *pb.RelayEnd {
	e := &pb.RelayEnd{Trailers: fieldsOf(trailer)}
	if err == nil {
		return e
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	// Invalid UTF-8 cannot be sent. It would end the stream for all clients.
	e.Code, e.Message = int32(st.Code()), strings.ToValidUTF8(st.Message(), "\uFFFD")
	if p := st.Proto(); len(p.GetDetails()) > 0 {
		e.Details, _ = proto.Marshal(p) // without the details, the rest is still useful
	}
	return e
}

func fieldsOf(md metadata.MD) []*pb.RelayHeaderField {
	var out []*pb.RelayHeaderField
	for name, list := range md {
		for _, v := range list {
			out = append(out, &pb.RelayHeaderField{Name: name, Value: []byte(v)})
		}
	}
	return out
}

// transport is the transport that gRPC functions find in the context of a call.
type transport struct{ *stream }

// Method implements grpc.ServerTransportStream.
func (t transport) Method() string { return t.method }

// SetTrailer implements grpc.ServerTransportStream.
func (t transport) SetTrailer(md metadata.MD) error {
	t.stream.SetTrailer(md)
	return nil
}
