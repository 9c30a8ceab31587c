package listen

import (
	"encoding/binary"
	"net"

	"golang.org/x/net/http2"
)

const (
	frameHead   = 9 // bytes before what a frame has
	prefaceSize = len(http2.ClientPreface)
)

// sending is the address of a connection's other end, and leads to the account of its requests.
type sending struct {
	net.Addr
	sender *sender
}

// Unwrap returns the address without what [Requests] knows of it.
func (a sending) Unwrap() net.Addr { return a.Addr }

// framed is a connection of HTTP/2 whose requests are noted as they are read. It has the buffer,
// and gRPC none, so that what is noted is what gRPC has read.
type framed struct {
	net.Conn
	in     *inflow
	sender *sender
	addr   sending

	skip  int // of the preface, or of a frame that does not matter, or of padding
	head  [frameHead]byte
	got   int
	data  int  // bytes of a frame of data that are to come
	pad   int  // bytes after them
	isPad bool // the next byte says how many
	call  uint32
}

// conn returns c with an account of what it sends.
func (all *Requests) conn(c net.Conn) net.Conn {
	f := &framed{Conn: c, in: newInflow(c), skip: prefaceSize}
	f.sender = all.sender(c.RemoteAddr().String(), func(error) {
		go c.Close() //nolint:errcheck // TLS may wait until it has said goodbye
	})
	f.addr = sending{c.RemoteAddr(), f.sender}
	return f
}

// RemoteAddr implements net.Conn.
func (f *framed) RemoteAddr() net.Addr { return f.addr }

// Close implements net.Conn.
func (f *framed) Close() error {
	f.sender.close()
	return f.Conn.Close()
}

// Read implements net.Conn.
func (f *framed) Read(p []byte) (int, error) {
	n, err := f.in.Read(p)
	if n > 0 && !f.sender.known.Load() {
		if why := f.note(p[:n]); why != nil {
			return 0, why
		}
	}
	return n, err
}

// note follows the frames.
func (f *framed) note(b []byte) error {
	for len(b) > 0 {
		switch {
		case f.skip > 0:
			n := min(f.skip, len(b))
			f.skip, b = f.skip-n, b[n:]
		case f.isPad:
			pad := int(b[0])
			f.isPad, b = false, b[1:]
			if f.data < pad {
				f.data, pad = 0, f.data // gRPC ends the connection
			}
			f.data, f.pad = f.data-pad, pad
			f.sender.awaitsData() // of data there may be none, and then nobody else notes it
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
			if err := f.begin(); err != nil {
				return err
			}
		}
	}
	if f.data > 0 || f.isPad {
		f.sender.awaitsData()
	}
	return nil
}

// endData goes on with the padding, after the data.
func (f *framed) endData() {
	if f.data == 0 {
		f.skip, f.pad = f.pad, 0
	}
}

// begin begins a frame.
func (f *framed) begin() error {
	size := int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
	kind, flags := http2.FrameType(f.head[3]), http2.Flags(f.head[4])
	stream := binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31)
	switch kind {
	case http2.FrameHeaders:
		f.sender.begins(stream)
	case http2.FrameData:
		f.call, f.data = stream, size
		if flags.Has(http2.FlagDataPadded) && size > 0 {
			f.isPad, f.data = true, size-1
		}
		return f.sender.frame(stream, size)
	}
	f.skip = size
	return nil
}
