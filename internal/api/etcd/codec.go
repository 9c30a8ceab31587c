package etcd

import (
	"encoding/binary"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"leasehold.dev/internal/wire"
)

// A frame is a response that encodes itself.
type frame interface {
	// buffers returns the encoded message. The caller frees it.
	buffers() mem.BufferSlice
}

// codec is gRPC's codec for protocol buffers, with three exceptions: the stream messages of
// leasehold.v1; frames, which encode themselves; and keep-alive requests, because hundreds of
// thousands of them can arrive per second.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{wire.Codec()} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(frame); ok {
		return f.buffers(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*pb.LeaseKeepAliveRequest); ok && len(data) == 1 &&
		readKeepAlive(data[0].ReadOnlyData(), m) {
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// readKeepAlive decodes a request that contains only an ID. For other requests, ok is false.
func readKeepAlive(b []byte, m *pb.LeaseKeepAliveRequest) (ok bool) {
	if len(b) == 0 || b[0] != varint1 {
		return false
	}
	id, n := binary.Uvarint(b[1:])
	if n <= 0 || n != len(b)-1 {
		return false
	}
	m.Reset()
	m.ID = int64(id)
	return true
}
