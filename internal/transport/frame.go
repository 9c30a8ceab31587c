package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"google.golang.org/grpc/mem"
)

// A frame is one gRPC message. It consists of the stream's format, the CRC-32C of what follows, and
// the messages, each preceded by its length in four bytes, little-endian. The checksum is necessary
// because TCP's own checksum misses about one damaged segment in 65,536, and Raft would never
// repair a wrong log entry.
const (
	frameHead  = 1 + crc32.Size
	lengthSize = 4

	// frameTarget is the size at which a frame is considered full. A member handles a frame in one
	// piece, so a heartbeat behind it has to wait.
	frameTarget = 1 << 20
	// maxFrame is the largest frame that a receiver accepts. The last message in a frame can have
	// any size up to MaxMessage.
	maxFrame = frameTarget + MaxMessage + frameHead + lengthSize
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errCorrupt means that the bytes received differ from the bytes sent.
var errCorrupt = errors.New("transport: corrupt frame")

// A blob is the codec's message type: raw bytes.
type blob struct{ data []byte }

// newFrame returns an empty frame with room for about size bytes of messages.
func newFrame(format uint8, size int) *blob {
	size += frameHead
	b := &blob{}
	if size < frameTarget/16 {
		b.data = make([]byte, 0, size)
	} else {
		b.data = *mem.DefaultBufferPool().Get(size)
	}
	b.data = append(b.data[:0], format, 0, 0, 0, 0)
	return b
}

// add appends a message. If the message is too large, add leaves the frame unchanged and returns
// the message's size and false.
func (b *blob) add(m Message) (size int, ok bool) {
	start := len(b.data)
	b.data = m.AppendTo(append(b.data, 0, 0, 0, 0))
	size = len(b.data) - start - lengthSize
	if size > MaxMessage {
		b.data = b.data[:start]
		return size, false
	}
	binary.LittleEndian.PutUint32(b.data[start:], uint32(size))
	return size, true
}

func (b *blob) empty() bool { return len(b.data) == frameHead }
func (b *blob) full() bool  { return len(b.data) >= frameTarget }

// seal writes the checksum. After that, nothing can be added.
func (b *blob) seal() *blob {
	sum := crc32.Checksum(b.data[frameHead:], castagnoli)
	binary.LittleEndian.PutUint32(b.data[1:], sum)
	return b
}

// open checks a frame and returns the part with the messages, for cut.
func open(format uint8, frame []byte) ([]byte, error) {
	if len(frame) < frameHead {
		return nil, fmt.Errorf("%w: %d bytes is too short for a frame", errCorrupt, len(frame))
	}
	if frame[0] != format {
		return nil, fmt.Errorf("%w: format %d, not %d", errCorrupt, frame[0], format)
	}
	body := frame[frameHead:]
	want := binary.LittleEndian.Uint32(frame[1:])
	if got := crc32.Checksum(body, castagnoli); got != want {
		return nil, fmt.Errorf("%w: checksum %08x, not %08x", errCorrupt, got, want)
	}
	return body, nil
}

// cut returns the first message of body and the rest. body must not be empty.
func cut(body []byte) (message, rest []byte, err error) {
	if len(body) < lengthSize {
		return nil, nil, fmt.Errorf("%w: truncated message length", errCorrupt)
	}
	n := binary.LittleEndian.Uint32(body)
	body = body[lengthSize:]
	if n > MaxMessage || int(n) > len(body) {
		return nil, nil, fmt.Errorf("%w: message length %d, but %d bytes remain", errCorrupt, n, len(body))
	}
	// Limit the capacity, because a handler that appends to the message must not overwrite the next
	// one.
	return body[:n:n], body[n:], nil
}

// bytesMessage is a Message that is already encoded.
type bytesMessage []byte

// Size implements Message.
func (m bytesMessage) Size() int { return len(m) }

// AppendTo implements Message.
func (m bytesMessage) AppendTo(b []byte) []byte { return append(b, m...) }

// single returns a sealed frame that contains one message.
func single(format uint8, message []byte) (*blob, error) {
	b := newFrame(format, len(message)+lengthSize)
	if size, ok := b.add(bytesMessage(message)); !ok {
		return nil, tooLarge(size)
	}
	return b.seal(), nil
}

// unwrap opens a frame that contains exactly one message.
func unwrap(format uint8, frame []byte) ([]byte, error) {
	body, err := open(format, frame)
	if err != nil {
		return nil, err
	}
	message, rest, err := cut(body)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: more than one message", errCorrupt)
	}
	return message, err
}

func tooLarge(size int) error {
	return fmt.Errorf("transport: a message of %d bytes exceeds the maximum of %d", size, MaxMessage)
}

// codec passes the bytes of blobs to and from gRPC unchanged.
type codec struct{}

// Name implements encoding.CodecV2. It is sent as the content type.
func (codec) Name() string { return "leasehold-blob" }

// Marshal implements encoding.CodecV2. From then on, gRPC owns the bytes. It returns large buffers
// to the pool once they are written.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*blob)
	if !ok {
		return nil, fmt.Errorf("transport: cannot send a %T", v)
	}
	if len(b.data) == 0 {
		return nil, nil
	}
	return mem.BufferSlice{mem.NewBuffer(&b.data, mem.DefaultBufferPool())}, nil
}

// Unmarshal implements encoding.CodecV2. It copies the data, because handlers retain messages.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*blob)
	if !ok {
		return fmt.Errorf("transport: cannot receive a %T", v)
	}
	b.data = data.Materialize()
	return nil
}
