package inprocess

import (
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"leasehold.dev/internal/host"
	"leasehold.dev/test/crashfs"
)

// latency is the time from a write to the read. It must not be zero: a loop of requests would stop
// virtual time.
const latency = 100 * time.Microsecond

// network connects members and clients in a bubble. Its addresses are paths of sockets.
type network struct {
	began time.Time
	disk  *crashfs.FS  // of all members
	dirs  atomic.Int64 // made so far

	mu        sync.Mutex // guards what follows
	listeners map[string]*listener
}

func newNetwork() *network {
	return &network{
		began: time.Now(), disk: crashfs.New(), listeners: make(map[string]*listener),
	}
}

// host returns a machine that is part of the network.
func (n *network) host() *host.Host {
	return &host.Host{
		Boot: func() time.Duration { return time.Hour + time.Since(n.began) },
		Listen: func(_ context.Context, u url.URL) (net.Listener, error) {
			return n.listen(u.Path)
		},
		Dial: func(ctx context.Context, _, at string) (net.Conn, error) { return n.dial(ctx, at) },
		FS:   n.disk,
	}
}

func (n *network) listen(at string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: "unix", Addr: addr(at), Err: syscall.EADDRINUSE}
	}
	l := &listener{network: n, at: at, in: make(chan net.Conn), done: make(chan struct{})}
	n.listeners[at] = l
	return l, nil
}

// dial connects to the path of a socket, or to an endpoint such as unix:/path.
func (n *network) dial(ctx context.Context, at string) (net.Conn, error) {
	at = socketPath(at)
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "unix", Addr: addr(at), Err: err}
	}
	time.Sleep(latency)
	n.mu.Lock()
	l := n.listeners[at]
	n.mu.Unlock()
	if l == nil {
		return fail(syscall.ECONNREFUSED)
	}
	there, back := newHalf(), newHalf()
	select {
	case l.in <- &conn{in: there, out: back, at: addr(at)}:
		return &conn{in: back, out: there, at: addr(at)}, nil
	case <-l.done:
		return fail(syscall.ECONNREFUSED)
	case <-ctx.Done():
		return fail(ctx.Err())
	}
}

func socketPath(endpoint string) string {
	return strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
}

type listener struct {
	network *network
	at      string
	in      chan net.Conn
	done    chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.network.listeners[l.at] == l {
		delete(l.network.listeners, l.at)
		close(l.done)
	}
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return addr(l.at) }

// chunk is the data of one write.
type chunk struct {
	data []byte
	at   time.Time // when it arrives
}

// half is one direction of a connection. Its buffer has no bound: writers hold locks, and time
// stands still in a bubble while a goroutine waits for a lock.
type half struct {
	mu       sync.Mutex // guards what follows
	changed  chan struct{}
	queue    []chunk
	ended    bool // the writer has closed
	deaf     bool // the reader has closed
	deadline time.Time
}

func newHalf() *half { return &half{changed: make(chan struct{})} }

// change changes the state and wakes a reader.
func (h *half) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *half) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		now, wake := time.Now(), h.deadline
		switch {
		case h.deaf:
			return 0, net.ErrClosed
		case !h.deadline.IsZero() && !now.Before(h.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(h.queue) == 0 && h.ended:
			return 0, io.EOF
		case len(h.queue) == 0:
		case now.Before(h.queue[0].at):
			if wake.IsZero() || h.queue[0].at.Before(wake) {
				wake = h.queue[0].at
			}
		default:
			n := copy(p, h.queue[0].data)
			if h.queue[0].data = h.queue[0].data[n:]; len(h.queue[0].data) == 0 {
				h.queue = h.queue[1:]
			}
			return n, nil
		}
		h.waitLocked(wake)
	}
}

// waitLocked waits for a change, or for a time that is not zero, and is called with h.mu.
func (h *half) waitLocked(wake time.Time) {
	changed := h.changed
	h.mu.Unlock()
	defer h.mu.Lock()
	if wake.IsZero() {
		<-changed
		return
	}
	t := time.NewTimer(time.Until(wake))
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	}
}

func (h *half) write(p []byte) (n int, err error) {
	h.change(func() {
		switch {
		case h.ended:
			err = net.ErrClosed
		case h.deaf:
			err = syscall.EPIPE
		default:
			n = len(p)
			h.queue = append(h.queue, chunk{append([]byte(nil), p...), time.Now().Add(latency)})
		}
	})
	return n, err
}

// conn is one end of a connection.
type conn struct {
	in, out *half
	at      addr
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) { return c.in.read(p) }

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p) }

// Close implements net.Conn.
func (c *conn) Close() error {
	c.out.change(func() { c.out.ended = true })
	c.in.change(func() { c.in.deaf = true })
	return nil
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.deadline = t })
	return nil
}

// SetWriteDeadline implements net.Conn. No write waits.
func (*conn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.at }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.at }

type addr string

// Network implements net.Addr.
func (addr) Network() string { return "unix" }

// String implements net.Addr.
func (a addr) String() string { return string(a) }
