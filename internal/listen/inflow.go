package listen

import (
	"net"
	"sync"
	"syscall"
)

const (
	readBuffer = 128 << 10
	// firstRead is how much a connection takes at first that cannot be asked whether there is
	// anything: a renewal is in it.
	firstRead = 96
)

// readBuffers are buffers that no connection has.
var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// inflow reads a connection through a buffer that it has only while there is something in it:
// most connections say nothing most of the time.
type inflow struct {
	conn   net.Conn
	socket syscall.RawConn // under conn, if that reads nothing else; nil if it may
	full   bool            // the last read of conn took all that it could, so there may be more
	first  [firstRead]byte

	rest []byte            // was read, and is to be handed out
	held *[readBuffer]byte // rest is in it; nil if it is elsewhere

	// Of a read of the socket, in fields so that it takes no memory.
	try  func(fd uintptr) (done bool)
	n    int
	fail error
}

func newInflow(c net.Conn) *inflow {
	f := &inflow{conn: c}
	if p, ok := c.(*replay); ok {
		f.rest, f.conn = p.head, p.Conn
	}
	if f.socket = socketOf(f.conn); f.socket != nil {
		f.try = f.tryRead
	}
	return f
}

// socketOf returns the socket that a connection reads, nil if it reads anything else.
func socketOf(c net.Conn) syscall.RawConn {
	if l, ok := c.(*counted); ok {
		c = l.Conn
	}
	var s syscall.RawConn
	var err error
	switch c := c.(type) {
	case *net.TCPConn:
		s, err = c.SyscallConn()
	case *net.UnixConn:
		s, err = c.SyscallConn()
	}
	if err != nil || !canTry {
		return nil // what reads of the connection will say, too
	}
	return s
}

// Read implements io.Reader.
func (f *inflow) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(f.rest) == 0 {
		if len(p) >= readBuffer {
			return f.conn.Read(p)
		}
		if err := f.fill(); len(f.rest) == 0 {
			return 0, err
		}
	}
	n = copy(p, f.rest)
	if f.rest = f.rest[n:]; len(f.rest) == 0 {
		f.giveBack()
	}
	return n, nil
}

// fill reads once. If it has read nothing it holds no buffer.
func (f *inflow) fill() (err error) {
	var n int
	switch {
	case f.socket != nil:
		n, err = f.readSocket()
	case f.full:
		f.held = readBuffers.Get().(*[readBuffer]byte)
		n, err = f.conn.Read(f.held[:])
		f.rest, f.full = f.held[:n], n == readBuffer
	default:
		n, err = f.conn.Read(f.first[:])
		f.rest, f.full = f.first[:n], n == firstRead
	}
	if n == 0 {
		f.giveBack()
	}
	return err // if there is something, it comes again with the next read
}

func (f *inflow) giveBack() {
	f.rest = nil
	if f.held != nil {
		readBuffers.Put(f.held)
		f.held = nil
	}
}
