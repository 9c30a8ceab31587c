package direct

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

const (
	headSize = 5
	// chunk is the size of the first read of a frame that does not fit into the buffer. Later reads
	// are larger, because by then more of the frame has arrived. The gRPC buffer pools have buffers
	// of this size, and the next larger size is largest. Sizes in between are not pooled.
	// Otherwise, a frame slightly longer than chunk would use a buffer of size largest.
	chunk   = 32 << 10
	largest = 1 << 20
)

// poolFor returns the pool for a buffer of the given size.
func poolFor(size int) mem.BufferPool {
	if size > chunk && size < largest/2 {
		return mem.NopBufferPool{}
	}
	return mem.DefaultBufferPool()
}

var (
	errFlags = status.Error(codes.InvalidArgument,
		"direct: a frame has unexpected flags")
	errLongLine = errors.New("direct: the first line is too long")
)

// bufferSize is how much to read at a time, unless a longer message is known to follow.
const bufferSize = 512

// buffers is a pool of buffers. A reader has one only while it has something to read.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// reader reads frames. Its buffer stores data that arrives together with a frame's header, so that
// a small message needs only one system call.
type reader struct {
	c    net.Conn
	buf  *[bufferSize]byte // nil if there are no unread bytes
	r, w int               // the range of unread bytes in buf
	// most limits the size of messages that do not fit into the buffer. 0 means no limit.
	most int
	// hold is called before memory is allocated for a message that does not fit into the buffer.
	// The function that it returns is called when the message has moved to a larger buffer, has
	// been decoded, or has failed. If hold is nil, memory use is not tracked.
	hold    func(bytes int) (release func(), err error)
	release func() // nil if no memory is held
}

// fill reads until n bytes are available. n must not exceed the size of the buffer.
func (r *reader) fill(n int) error {
	if r.w-r.r >= n {
		return nil
	}
	r.makeRoom()
	got, err := io.ReadAtLeast(r.c, r.buf[r.w:], n-r.w)
	r.w += got
	return err
}

// makeRoom allocates a buffer if there is none. Otherwise, it moves the unread bytes to the start
// of the buffer.
func (r *reader) makeRoom() {
	if r.buf == nil {
		r.buf = buffers.Get().(*[bufferSize]byte)
	}
	if r.r > 0 {
		r.w = copy(r.buf[:], r.buf[r.r:r.w])
		r.r = 0
	}
}

// giveBack returns the buffer to the pool if it has no unread bytes.
func (r *reader) giveBack() {
	if r.buf != nil && r.r == r.w {
		buffers.Put(r.buf)
		r.buf, r.r, r.w = nil, 0, 0
	}
}

// line reads a line and returns it without the line terminator.
func (r *reader) line(most int) (string, error) {
	for n := 1; n <= most; n++ {
		if err := r.fill(n); err != nil {
			return "", err
		}
		if at := bytes.IndexByte(r.buf[r.r:r.w], '\n'); at >= 0 {
			line := string(r.buf[r.r : r.r+at])
			r.r += at + 1
			return line, nil
		}
		n = r.w - r.r
	}
	return "", errLongLine
}

// head reads the header of a frame.
func (r *reader) head() (flags byte, size int, err error) {
	if err := r.fill(headSize); err != nil {
		return 0, 0, err
	}
	head := r.buf[r.r : r.r+headSize]
	r.r += headSize
	n := binary.BigEndian.Uint32(head[1:])
	if n > 1<<31-1 {
		return 0, 0, status.Errorf(codes.InvalidArgument, "direct: frame too long: %d bytes", n)
	}
	return head[0], int(n), nil
}

// body reads the data of a frame. The caller must free the data before reading more.
func (r *reader) body(size int) (mem.Buffer, error) {
	if size <= bufferSize {
		if err := r.fill(size); err != nil {
			return nil, err
		}
		b := r.buf[r.r : r.r+size]
		r.r += size
		return mem.SliceBuffer(b), nil
	}
	return r.longBody(size)
}

// longBody is body for data that does not fit into the buffer. It first allocates memory only for
// the beginning, and more once the beginning has arrived, because a frame header alone does not
// justify a large allocation.
func (r *reader) longBody(size int) (mem.Buffer, error) {
	var pool mem.BufferPool = mem.NopBufferPool{}
	b := new([]byte)
	for have := 0; ; {
		next := size
		if have < size/4 {
			next = max(4*have, min(size, chunk))
		}
		if err := r.enlarge(&b, &pool, next); err != nil {
			return nil, err
		}
		if have == 0 && r.buf != nil {
			have = copy(*b, r.buf[r.r:r.w])
			r.r, r.w = 0, 0
		}
		n, err := io.ReadFull(r.c, (*b)[have:])
		if have += n; err != nil {
			pool.Put(b)
			return nil, err
		}
		if have == size {
			return mem.NewBuffer(b, pool), nil
		}
	}
}

// enlarge replaces a buffer with a larger one and copies its contents.
func (r *reader) enlarge(b **[]byte, pool *mem.BufferPool, size int) error {
	var release func()
	var err error
	if r.hold != nil {
		release, err = r.hold(size)
	}
	if err != nil {
		(*pool).Put(*b)
		return err
	}
	from := poolFor(size)
	more := from.Get(size)
	copy(*more, **b)
	(*pool).Put(*b)
	*b, *pool = more, from
	r.releaseHeld()
	r.release = release
	return nil
}

// releaseHeld releases the memory that is held, if any.
func (r *reader) releaseHeld() {
	if r.release != nil {
		r.release()
		r.release = nil
	}
}

// message reads the message of a frame after its header has been read.
func (r *reader) message(size int, codec encoding.CodecV2, m any) error {
	if r.most > 0 && size > max(r.most, bufferSize) {
		return status.Errorf(codes.ResourceExhausted,
			"leasehold: message too long: %d bytes; the limit is %d", size, r.most)
	}
	defer r.releaseHeld()
	b, err := r.body(size)
	if err != nil {
		return err
	}
	data := mem.BufferSlice{b}
	defer data.Free()
	if err := codec.Unmarshal(data, m); err != nil {
		return undecodable{err}
	}
	return nil
}

// undecodable is the error for a message that has arrived completely but cannot be decoded.
type undecodable struct{ error }

// GRPCStatus returns the error as a gRPC status.
func (u undecodable) GRPCStatus() *status.Status {
	if s, ok := status.FromError(u.error); ok {
		return s
	}
	return status.Newf(codes.Internal, "direct: cannot decode a message: %v", u.error)
}

// metadata reads the data of a metadata frame.
func (r *reader) metadata(size int) (head, error) {
	if size > maxHead {
		return nil, fmt.Errorf("direct: metadata too long: %d bytes; the limit is %d", size, maxHead)
	}
	b, err := r.body(size)
	if err != nil {
		return nil, err
	}
	defer b.Free()
	return parseHead(string(b.ReadOnlyData()))
}

// writeFrame writes a frame and frees its data.
func writeFrame(c io.Writer, flags byte, data mem.BufferSlice) error {
	defer data.Free()
	size := data.Len()
	if size > 1<<31-1 {
		return status.Errorf(codes.ResourceExhausted, "direct: message too long: %d bytes", size)
	}
	pool := mem.DefaultBufferPool()
	b := pool.Get(min(headSize+size, chunk))
	defer pool.Put(b)
	(*b)[0] = flags
	binary.BigEndian.PutUint32((*b)[1:], uint32(size))
	have := headSize
	for _, part := range data {
		for rest := part.ReadOnlyData(); len(rest) > 0; {
			// the buffer is empty, so there is no need to copy
			if have == 0 && len(rest) >= len(*b) {
				if _, err := c.Write(rest); err != nil {
					return err
				}
				break
			}
			n := copy((*b)[have:], rest)
			have, rest = have+n, rest[n:]
			if have < len(*b) {
				break
			}
			if _, err := c.Write(*b); err != nil {
				return err
			}
			have = 0
		}
	}
	if have == 0 {
		return nil
	}
	_, err := c.Write((*b)[:have])
	return err
}
