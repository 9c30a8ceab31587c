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
	// chunk is how much of a frame longer than the buffer is read at once, until it is known that
	// more arrives. The pools of gRPC have buffers of this size, and the next size is largest:
	// sizes in between are not pooled, or else a little more than a chunk would cost as much as
	// that.
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
		"direct: a frame has flags that are not expected")
	errLongLine = errors.New("direct: the first line is too long")
)

// bufferSize is how much is read at once, unless a longer message is known to follow.
const bufferSize = 512

// buffers are for readers that have something to read.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// reader reads frames. Its buffer receives what arrives together with a frame's head, so that a
// small message takes one system call.
type reader struct {
	c    net.Conn
	buf  *[bufferSize]byte // nil if empty
	r, w int               // the unread part of the buffer
	// most limits the size of messages longer than the buffer; 0 means no limit.
	most int
	// hold is called before memory is allocated for a message longer than the buffer. The function
	// it returns is called when the message has moved to larger memory, was decoded, or has failed.
	// If hold is nil, nothing is recorded.
	hold    func(bytes int) (release func(), err error)
	release func() // nil if nothing is held
}

// fill reads until n bytes are available, at most the size of the buffer.
func (r *reader) fill(n int) error {
	if r.w-r.r >= n {
		return nil
	}
	r.makeRoom()
	got, err := io.ReadAtLeast(r.c, r.buf[r.w:], n-r.w)
	r.w += got
	return err
}

// makeRoom gets a buffer if there is none, and moves the unread bytes to its start.
func (r *reader) makeRoom() {
	if r.buf == nil {
		r.buf = buffers.Get().(*[bufferSize]byte)
	}
	if r.r > 0 {
		r.w = copy(r.buf[:], r.buf[r.r:r.w])
		r.r = 0
	}
}

// giveBack returns the buffer to the pool if it is empty.
func (r *reader) giveBack() {
	if r.buf != nil && r.r == r.w {
		buffers.Put(r.buf)
		r.buf, r.r, r.w = nil, 0, 0
	}
}

// line reads a line, and returns it without its end.
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

// head reads the head of a frame.
func (r *reader) head() (flags byte, size int, err error) {
	if err := r.fill(headSize); err != nil {
		return 0, 0, err
	}
	head := r.buf[r.r : r.r+headSize]
	r.r += headSize
	n := binary.BigEndian.Uint32(head[1:])
	if n > 1<<31-1 {
		return 0, 0, status.Errorf(codes.InvalidArgument, "direct: a frame of %d bytes", n)
	}
	return head[0], int(n), nil
}

// body reads the data of a frame. The caller must free it before reading more.
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

// longBody is body for data longer than the buffer. It allocates memory for the beginning first,
// and for more when that has arrived: a head alone does not justify a large allocation.
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

// enlarge replaces a buffer with a larger one that has the same content.
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
	r.letGo()
	r.release = release
	return nil
}

// letGo reports that nothing is held any longer.
func (r *reader) letGo() {
	if r.release != nil {
		r.release()
		r.release = nil
	}
}

// message reads the message of a frame whose head has been read.
func (r *reader) message(size int, codec encoding.CodecV2, m any) error {
	if r.most > 0 && size > max(r.most, bufferSize) {
		return status.Errorf(codes.ResourceExhausted,
			"leasehold: a message of %d bytes, the limit is %d", size, r.most)
	}
	defer r.letGo()
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

// undecodable is the error for a complete message that cannot be decoded.
type undecodable struct{ error }

// GRPCStatus returns the error as a gRPC status.
func (u undecodable) GRPCStatus() *status.Status {
	if s, ok := status.FromError(u.error); ok {
		return s
	}
	return status.Newf(codes.Internal, "direct: a message cannot be decoded: %v", u.error)
}

// metadata reads the data of a metadata frame.
func (r *reader) metadata(size int) (head, error) {
	if size > maxHead {
		return nil, fmt.Errorf("direct: %d bytes of metadata, more than %d", size, maxHead)
	}
	b, err := r.body(size)
	if err != nil {
		return nil, err
	}
	defer b.Free()
	return parseHead(string(b.ReadOnlyData()))
}

// writeFrame writes a frame, and frees its data.
func writeFrame(c io.Writer, flags byte, data mem.BufferSlice) error {
	defer data.Free()
	size := data.Len()
	if size > 1<<31-1 {
		return status.Errorf(codes.ResourceExhausted, "direct: a message of %d bytes", size)
	}
	pool := mem.DefaultBufferPool()
	b := pool.Get(min(headSize+size, chunk))
	defer pool.Put(b)
	(*b)[0] = flags
	binary.BigEndian.PutUint32((*b)[1:], uint32(size))
	have := headSize
	for _, part := range data {
		for rest := part.ReadOnlyData(); len(rest) > 0; {
			if have == 0 && len(rest) >= len(*b) { // nothing gathered, so no need to copy
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
