package etcd

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"leasehold.dev/internal/wire"
)

// A frame is a response that knows its own encoding.
type frame interface {
	// buffers returns the encoded message. The caller frees it.
	buffers() mem.BufferSlice
}

// codec is gRPC's own for protocol buffers, but for the messages of leasehold.v1's
// streams, and for frames, which it takes as they are.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{wire.Codec()} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(frame); ok {
		return f.buffers(), nil
	}
	return c.CodecV2.Marshal(v)
}
