package direct

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// Socket is a connection that need not wait for what it reads, or for room for what it writes. Then
// its stream can rest: see [Rest]. It is to be the lowest part of a connection that does more than
// to count, so below TLS.
type Socket struct {
	net.Conn
	raw syscall.RawConn

	// resting says that reads and writes do not wait now. A read that would is errWouldWait. What
	// a write has no room for is kept, for drain.
	resting atomic.Bool
	rest    atomic.Pointer[Rest] // is told when the connection is closed; may be nil

	// What follows belongs to what reads.
	eager bool // a read has to go on until it would wait, or fails: the client may have hung up
	dry   bool // a read would wait, or would have when it was tried

	mu       sync.Mutex // guards what follows
	left     []byte     // to be written before anything else
	draining bool       // and somebody does
}

// maxLeft bounds what is kept of one connection. A stream that rests sends a message that is not
// large, and is woken if that does not fit. TLS may answer besides.
const maxLeft = 64 << 10

var errLeft = errors.New("direct: the client reads nothing of what it has asked for")

// trial is a system call that does not wait.
type trial struct {
	p   []byte
	n   int
	err error

	doRead, doWrite func(fd uintptr) bool // its read and write
}

// trials are not used now. So a call takes no memory, and nor does a connection that is idle.
var trials = sync.Pool{New: func() any {
	t := new(trial)
	t.doRead, t.doWrite = t.read, t.write
	return t
}}

// try reads, or writes, without waiting.
func (s *Socket) try(p []byte, writes bool) (n int, err error) {
	t := trials.Get().(*trial)
	t.p = p
	if writes {
		err = s.raw.Write(t.doWrite)
	} else {
		err = s.raw.Read(t.doRead)
	}
	if err == nil {
		n, err = t.n, t.err
	}
	t.p, t.err = nil, nil
	trials.Put(t)
	return n, err
}

// NewSocket returns a Socket for a connection whose file is raw. Without raw, and where no stream
// can rest, it returns the connection.
func NewSocket(c net.Conn, raw syscall.RawConn) net.Conn {
	if raw == nil || !canRest {
		return c
	}
	return &Socket{Conn: c, raw: raw}
}

// errWouldWait says that there is nothing to read yet. It is temporary, so that TLS can go on.
var errWouldWait net.Error = wouldWait{}

type wouldWait struct{}

func (wouldWait) Error() string   { return "direct: there is nothing to read yet" }
func (wouldWait) Timeout() bool   { return true }
func (wouldWait) Temporary() bool { return true }

// Read implements net.Conn.
func (s *Socket) Read(p []byte) (int, error) {
	switch {
	case !s.resting.Load():
		return s.Conn.Read(p)
	case s.dry:
		return 0, errWouldWait
	}
	n, err := s.try(p, false)
	if err == nil {
		s.dry = !s.eager && n < len(p)
	} else {
		s.dry = errors.Is(err, errWouldWait)
	}
	return n, err
}

// Write implements net.Conn.
func (s *Socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	if s.draining || s.resting.Load() {
		defer s.mu.Unlock()
		return s.writeLocked(p)
	}
	err := s.drainLocked()
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return s.Conn.Write(p)
}

// writeLocked writes what there is room for, and keeps what there is not.
func (s *Socket) writeLocked(p []byte) (n int, err error) {
	if !s.draining && len(s.left) == 0 {
		if n, err = s.try(p, true); err != nil {
			return 0, err
		}
	}
	if len(s.left)+len(p)-n > maxLeft {
		return n, errLeft
	}
	s.left = append(s.left, p[n:]...)
	return len(p), nil
}

// full reports whether something was kept that there was no room for.
func (s *Socket) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining || len(s.left) > 0
}

// drain waits until what was kept is written.
func (s *Socket) drain() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil // what is kept is written, and comes before what is written from now on
	}
	return s.drainLocked()
}

// drainLocked is drain, by the one that does it. Meanwhile others may keep more.
func (s *Socket) drainLocked() error {
	s.draining = true
	defer func() { s.draining = false }()
	for len(s.left) > 0 {
		next := s.left
		s.left = nil
		s.mu.Unlock()
		_, err := s.Conn.Write(next)
		s.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// Close implements net.Conn. A stream that rests is told.
func (s *Socket) Close() error {
	err := s.Conn.Close()
	s.Closed()
	return err
}

// Closed tells a stream that rests that its connection was closed by other means than Close.
func (s *Socket) Closed() {
	if r := s.rest.Load(); r != nil {
		go r.Wake() // the caller may be the one that is called inline
	}
}

// CloseWrite tells the other side that no more will come, if the connection can.
func (s *Socket) CloseWrite() error {
	if half, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// socketOf returns the Socket of a connection, nil if it has none. What wraps one has a method that
// returns it.
func socketOf(c net.Conn) *Socket {
	switch c := c.(type) {
	case *Socket:
		return c
	case interface{ Socket() net.Conn }:
		s, _ := c.Socket().(*Socket)
		return s
	}
	return nil
}
