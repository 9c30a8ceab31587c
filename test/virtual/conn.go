package virtual

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// windowBytes is the maximum amount of data in flight on a connection before the writer blocks.
const windowBytes = 4 << 20

// chunk is the data of one Write together with its arrival time.
type chunk struct {
	data []byte
	at   time.Time
}

// half is one direction of a connection.
type half struct {
	net      *Network
	from, to *Machine
	pair     *pair

	mu         sync.Mutex // guards the following fields
	waiting    int        // number of goroutines waiting for a change
	changed    chan struct{}
	queue      []chunk
	bytes      int
	ended      bool  // the writer has finished
	readClosed bool  // the reader is closed
	failed     error // the error returned by all further reads and writes
	readBy     time.Time
	writeBy    time.Time
	last       time.Time // arrival time of the last chunk; later chunks do not arrive before it
}

func (h *half) wakeLocked() {
	if h.waiting > 0 {
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// fail makes all further reads and writes return err.
func (h *half) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed == nil {
		h.failed = err
		h.queue = nil
		h.wakeLocked()
	}
}

// over reports whether no more data can be written.
func (h *half) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed != nil || h.ended || h.from.IsDead()
}

// closeRead closes the reading side. As in TCP, the writer detects this only when its next write is
// rejected.
func (h *half) closeRead() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readClosed, h.queue = true, nil
	h.wakeLocked()
}

// waitLocked waits for a change, but no longer than the earlier of two times.
func (h *half) waitLocked(a, b time.Time) {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		a = b
	}
	h.waiting++
	changed := h.changed
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.waiting--
	}()
	if a.IsZero() {
		<-changed
		return
	}
	t := time.NewTimer(time.Until(a))
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	}
}

func past(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func (h *half) read(p []byte) (int, error) {
	h.to.Gate()
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		open := h.net.open(h.from, h.to) && !h.to.stopped()
		switch {
		case h.failed != nil:
			return 0, h.failed
		case h.readClosed:
			return 0, net.ErrClosed
		case open && len(h.queue) > 0 && past(h.queue[0].at):
			n := copy(p, h.queue[0].data)
			if h.queue[0].data = h.queue[0].data[n:]; len(h.queue[0].data) == 0 {
				h.queue = h.queue[1:]
			}
			if h.bytes -= n; h.bytes+n >= windowBytes {
				h.wakeLocked()
			}
			return n, nil
		case open && len(h.queue) == 0 && h.ended:
			return 0, io.EOF
		case past(h.readBy):
			return 0, os.ErrDeadlineExceeded
		}
		var next time.Time
		if open && len(h.queue) > 0 {
			next = h.queue[0].at
		}
		h.waitLocked(next, h.readBy)
	}
}

func (h *half) write(p []byte) (int, error) {
	h.from.Gate()
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.failed != nil:
			return 0, h.failed
		case h.ended, h.from.IsDead():
			return 0, net.ErrClosed
		case h.readClosed && h.net.answers(h.from, h.to):
			h.mu.Unlock()
			h.pair.to.fail(syscall.ECONNRESET)
			h.pair.from.fail(syscall.ECONNRESET)
			h.mu.Lock()
			return 0, syscall.ECONNRESET
		case h.readClosed:
			return len(p), nil
		case past(h.writeBy):
			return 0, os.ErrDeadlineExceeded
		case h.bytes < windowBytes:
			at := time.Now().Add(h.net.delay(h.from, h.to))
			if at.Before(h.last) {
				at = h.last
			}
			h.last = at
			h.queue = append(h.queue, chunk{bytes.Clone(p), at})
			h.bytes += len(p)
			h.wakeLocked()
			return len(p), nil
		}
		h.waitLocked(h.writeBy, time.Time{})
	}
}

// conn is one end of a connection.
type conn struct {
	in, out       *half
	local, remote net.Addr
	pair          *pair
	once          sync.Once
}

// pair holds both directions of a connection.
type pair struct{ to, from *half }

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.wrap("read", err)
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.wrap("write", err)
}

func (c *conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: c.remote.Network(), Source: c.local, Addr: c.remote, Err: err}
}

// Close implements net.Conn. It sends nothing for a dead process, because sever has already reset
// the connections of that process.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.out.mu.Lock()
		c.out.ended = !c.out.from.IsDead()
		c.out.wakeLocked()
		c.out.mu.Unlock()
		c.in.closeRead()
		c.in.net.forget(c.pair)
	})
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.readBy = t
	c.in.wakeLocked()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.writeBy = t
	c.out.wakeLocked()
	return nil
}

// name is an address without an IP, such as a Unix socket.
type name string

// Network implements net.Addr.
func (name) Network() string { return "tcp" }

// String implements net.Addr.
func (n name) String() string { return string(n) }

// addr returns the address of a port or of a Unix socket.
func addr(at string) net.Addr {
	if ip, err := netip.ParseAddrPort(at); err == nil {
		return net.TCPAddrFromAddrPort(ip)
	}
	if at == "" || at[0] == '/' {
		return &net.UnixAddr{Name: at, Net: "unix"}
	}
	return name(at)
}

func opError(op, at string, err error) error {
	to := addr(at)
	return &net.OpError{Op: op, Net: to.Network(), Addr: to, Err: err}
}
