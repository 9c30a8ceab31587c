package wire

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the standard codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// Codec returns gRPC's codec for protocol buffers, except that it uses this package for stream
// messages.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v.(type) {
	case *pb.ClientMessage, *pb.ServerMessage:
	default:
		return c.CodecV2.Marshal(v)
	}
	n := size(v)
	if mem.IsBelowBufferPoolingThreshold(n) {
		b := make([]byte, n)
		if !write(b, v) {
			return c.CodecV2.Marshal(v)
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	pool := mem.DefaultBufferPool()
	b := pool.Get(n)
	if !write(*b, v) {
		pool.Put(b)
		return c.CodecV2.Marshal(v)
	}
	return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v.(type) {
	case *pb.ClientMessage, *pb.ServerMessage:
	default:
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return read(b.ReadOnlyData(), v)
}

// RequestSize returns the encoded length of a request, excluding unknown fields. ok is false if the
// request contains a string that is not valid UTF-8 and therefore cannot be sent.
func RequestSize(m *pb.Request) (n int, ok bool) {
	w := writer{strict: true}
	w.writeRequest(m)
	return -w.i, !w.odd
}

// ResponseSize returns the encoded length of a response, excluding unknown fields.
func ResponseSize(m *pb.Response) int {
	w := writer{}
	w.writeResponse(m)
	return -w.i
}

// size returns the encoded length of a stream message, excluding unknown fields.
func size(v any) int {
	w := writer{}
	w.message(v)
	return -w.i
}

// write encodes a stream message into b. The length of b must be the encoded length of the message.
// ok is false if the standard encoding must be used instead.
func write(b []byte, v any) (ok bool) {
	w := writer{b: b, i: len(b)}
	w.message(v)
	return !w.odd && w.i == 0
}

func (w *writer) message(v any) {
	switch m := v.(type) {
	case *pb.ClientMessage:
		w.writeClientMessage(m)
	case *pb.ServerMessage:
		w.writeServerMessage(m)
	}
}

// read decodes a stream message.
func read(b []byte, v any) error {
	r := reader{b: b, end: len(b)}
	switch m := v.(type) {
	case *pb.ClientMessage:
		m.Reset()
		r.readClientMessage(m, r.end)
	case *pb.ServerMessage:
		m.Reset()
		r.readServerMessage(m, r.end)
	default:
		r.odd = true
	}
	if r.odd {
		return proto.Unmarshal(b, v.(proto.Message))
	}
	return nil
}
