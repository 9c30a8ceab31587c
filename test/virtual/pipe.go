package virtual

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// windowBytes is how much one end may send before the other reads it.
const windowBytes = 256 << 10

// latency is how long after it was sent a reader gets something. Without it all calls would take no
// time at all.
const latency = 20 * time.Microsecond

// pipe is one direction of a connection.
type pipe struct {
	mu      sync.Mutex // guards what follows
	changed *sync.Cond
	sent    []byte // on its way to data
	data    []byte // can be read
	ended   bool   // the writer has closed
	left    bool   // the reader has closed
	reading deadline
	writing deadline
}

func newPipe() *pipe {
	p := new(pipe)
	p.changed = sync.NewCond(&p.mu)
	return p
}

// deadline is a time at which reading or writing fails.
type deadline struct {
	passed bool
	timer  *time.Timer
}

// set changes a deadline of the pipe. One that has passed counts at once.
func (p *pipe) set(d *deadline, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer, d.passed = nil, !at.IsZero() && !at.After(time.Now())
	if !at.IsZero() && !d.passed {
		var own *time.Timer
		own = time.AfterFunc(time.Until(at), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if d.timer == own {
				d.passed = true
				p.changed.Broadcast()
			}
		})
		d.timer = own
	}
	p.changed.Broadcast()
}

// close ends the pipe for its writer or its reader.
func (p *pipe) close(end *bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*end = true
	p.changed.Broadcast()
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.left:
			return 0, net.ErrClosed
		case p.reading.passed:
			return 0, os.ErrDeadlineExceeded
		case len(p.data) > 0:
			n := copy(b, p.data)
			p.data = p.data[n:]
			p.changed.Broadcast()
			return n, nil
		case p.ended && len(p.sent) == 0:
			return 0, io.EOF
		}
		p.changed.Wait()
	}
}

// deliver lets the reader have what was sent.
func (p *pipe) deliver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.data, p.sent = append(p.data, p.sent...), p.sent[:0]
	p.changed.Broadcast()
}

func (p *pipe) write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch room := windowBytes - len(p.sent) - len(p.data); {
		case p.ended:
			return n, net.ErrClosed
		case p.writing.passed:
			return n, os.ErrDeadlineExceeded
		case p.left:
			return n, syscall.EPIPE
		case n == len(b):
			return n, nil
		case room > 0:
			part := b[n:min(len(b), n+room)]
			if len(p.sent) == 0 {
				time.AfterFunc(latency, p.deliver)
			}
			p.sent = append(p.sent, part...)
			n += len(part)
		default:
			p.changed.Wait()
		}
	}
}

// conn is one end of a connection.
type conn struct {
	in, out       *pipe
	local, remote net.Addr
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.failed("read", err)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	return n, c.failed("write", err)
}

func (c *conn) failed(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "unix", Source: c.local, Addr: c.remote, Err: err}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.out.close(&c.out.ended)
	c.in.close(&c.in.left)
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(at time.Time) error {
	_ = c.SetReadDeadline(at)
	return c.SetWriteDeadline(at)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(at time.Time) error {
	c.in.set(&c.in.reading, at)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(at time.Time) error {
	c.out.set(&c.out.writing, at)
	return nil
}
