package listen

import (
	"context"
	"encoding/binary"
	"net"
	"sync"

	"golang.org/x/net/http2"
)

const (
	frameHead   = 9 // bytes before the payload
	prefaceSize = len(http2.ClientPreface)
	largeRead   = 16 << 10
)

var largeReads = sync.Pool{New: func() any { return new([largeRead]byte) }}

// frames reads an HTTP/2 connection and tracks the frames that gRPC receives. gRPC must read
// without a buffer of its own, so that a call's headers are the last thing tracked when gRPC calls
// its tap handle. The buffers here are for frame headers and small frames. Most connections are
// idle, so a connection waits for data with a small buffer, and borrows a large one while data
// arrives faster than that. Large payloads go directly to gRPC's buffer.
type frames struct {
	conn   net.Conn
	sender *sender
	pace   *pace

	small [512]byte
	large *[largeRead]byte // borrowed from largeReads; nil if data arrives slowly
	more  bool             // whether the last read filled its buffer
	rest  []byte           // part of a buffer that has been read but not returned yet

	skip int // remaining bytes of the preface or of an irrelevant payload
	head [frameHead]byte
	got  int  // number of bytes in head
	data int  // remaining bytes of a data frame
	pad  int  // remaining bytes of the padding that follows
	size bool // the next byte is the padding length
	call uint32

	opened int // calls opened since the last call to pace.wait
}

// Read returns buffered bytes, or reads more if there are none.
func (f *frames) Read(p []byte) (n int, err error) {
	// A large buffer can hold hundreds of calls or resets, and they count before it has been used up.
	if len(f.rest) == 0 || f.sender.opens+f.sender.resets >= fewOpens {
		if err := f.sender.wait(context.Background()); err != nil {
			return 0, err
		}
	}
	if len(f.rest) == 0 {
		if len(p) >= len(f.small) {
			f.more = false // the rest of a large payload is no sign of many small frames
			n, err = f.conn.Read(p)
		} else {
			n, err = f.fill()
		}
		if n == 0 {
			return 0, err // if bytes were read as well, the next read returns the error again
		}
	}
	if len(f.rest) > 0 {
		n = copy(p, f.rest)
		f.rest = f.rest[n:]
	}
	if f.sender.isFree() {
		return n, nil
	}
	if err := f.note(p[:n]); err != nil {
		return 0, err
	}
	if f.opened >= fewOpens {
		f.opened = 0
		f.pace.wait()
	}
	return n, nil
}

// fill reads into a buffer: the large one if the last read filled its buffer. A stranger never gets
// the large one, so that it cannot make many connections hold one.
func (f *frames) fill() (n int, err error) {
	switch {
	case f.more && f.large == nil && f.sender.known.Load():
		f.large = largeReads.Get().(*[largeRead]byte)
	case !f.more && f.large != nil:
		largeReads.Put(f.large)
		f.large = nil
	}
	buffer := f.small[:]
	if f.large != nil {
		buffer = f.large[:]
	}
	n, err = f.conn.Read(buffer)
	f.rest, f.more = buffer[:n], n == len(buffer)
	return n, err
}

// note tracks the frames in b. If it returns an error, the connection ends.
func (f *frames) note(b []byte) error {
	for len(b) > 0 {
		switch {
		case f.skip > 0:
			n := min(f.skip, len(b))
			f.skip, b = f.skip-n, b[n:]
		case f.size:
			pad := min(int(b[0]), f.data)
			f.size, f.data, f.pad, b = false, f.data-pad, pad, b[1:]
			// if the frame has no data, the call below is not reached
			f.sender.awaitsData()
			f.endData()
		case f.data > 0:
			n := min(f.data, len(b))
			f.sender.data(f.call, b[:n])
			f.data, b = f.data-n, b[n:]
			f.endData()
		default:
			n := copy(f.head[f.got:], b)
			f.got, b = f.got+n, b[n:]
			if f.got < frameHead {
				continue
			}
			f.got = 0
			if err := f.begin(len(b) == 0); err != nil {
				return err
			}
		}
	}
	if f.data > 0 || f.size {
		f.sender.awaitsData()
	}
	return nil
}

// endData skips the padding once the data is complete.
func (f *frames) endData() {
	if f.data == 0 {
		f.skip, f.pad = f.pad, 0
	}
}

// begin begins a frame. atEnd is set if rest begins with its payload. Data that is already there is
// tracked at once, which takes one lock instead of two.
func (f *frames) begin(atEnd bool) error {
	size := int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
	kind, flags := http2.FrameType(f.head[3]), http2.Flags(f.head[4])
	stream := binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31)
	switch kind {
	case http2.FrameHeaders:
		f.sender.newest = stream
		f.opened++
	case http2.FrameRSTStream:
		f.sender.resets++
	case http2.FrameData:
		switch padded := flags.Has(http2.FlagDataPadded) && size > 0; {
		case padded:
			f.call, f.size, f.data = stream, true, size-1
		case atEnd && size <= len(f.rest):
			f.skip = size
			return f.sender.frame(stream, size, f.rest[:size])
		default:
			f.call, f.data = stream, size
		}
		return f.sender.frame(stream, size, nil)
	}
	f.skip = size
	return nil
}
