package direct

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Rest lets a stream do without a receiving goroutine while its client is idle. A single server
// goroutine watches all such connections, and starts a receiving goroutine when something arrives.
// A nil Rest never rests.
type Rest struct {
	stream *serverStream
	raw    syscall.RawConn // the socket
	poller *poller
	id     uint64

	mu     sync.Mutex // guards the following fields
	wake   func()     // nil unless the stream is resting
	known  bool       // whether the poller knows the connection
	closed bool
}

type restKey struct{}

// RestOf returns the Rest of the stream with the given context, or nil if it cannot rest.
func RestOf(ctx context.Context) *Rest {
	r, _ := ctx.Value(restKey{}).(*Rest)
	return r
}

// withRest returns a context that carries the stream's Rest for RestOf. It returns ctx unchanged if
// the connection has no socket.
func (g *serverStream) withRest(ctx context.Context) context.Context {
	raw := socketOf(g.raw)
	if raw == nil {
		return ctx
	}
	p := g.server.poll()
	if p == nil {
		return ctx
	}
	g.rest = &Rest{stream: g, raw: raw, poller: p, id: p.newID()}
	return context.WithValue(ctx, restKey{}, g.rest)
}

// socketOf returns the socket of a connection, or nil if there is none. If the connection wraps
// another connection, its Socket method returns the inner one.
func socketOf(c net.Conn) syscall.RawConn {
	if outer, ok := c.(interface{ Socket() net.Conn }); ok {
		c = outer.Socket()
	}
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// Await waits at most d and reports whether there may be something to receive. Only the receiving
// goroutine may call it.
func (r *Rest) Await(d time.Duration) bool { return r == nil || r.stream.await(d) }

// Begin starts a rest and reports whether it succeeded. It must be called after Await has returned
// false. If Begin returns true, the receiving goroutine must end. A new goroutine calls wake when
// there is something to receive or when the stream ends.
func (r *Rest) Begin(wake func()) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wake = wake
	if r.poller.arm(r) != nil {
		r.wake = nil
	}
	return r.wake != nil
}

// end ends the rest, if the stream is resting.
func (r *Rest) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wake != nil {
		go r.wake()
		r.wake = nil
	}
}

// close prevents further rests and ends the current one, because the stream is ending.
func (r *Rest) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end()
	r.poller.forget(r)
}

// await implements [Rest.Await]. If d is not positive, it checks only data that has already been
// read, including by TLS. That is sufficient, because the poller reports immediately if the socket
// has data.
func (g *serverStream) await(d time.Duration) bool {
	g.receiving.Lock()
	defer g.receiving.Unlock()
	if g.in.w > g.in.r || g.through || !g.readBy(time.Now().Add(d)) {
		return true
	}
	err := g.in.fill(1)
	var late net.Error
	if !g.readBy(time.Time{}) || !errors.As(err, &late) || !late.Timeout() {
		return true
	}
	g.in.giveBack()
	return false
}

// readBy sets the read deadline. It does nothing and returns false if the stream has ended.
func (g *serverStream) readBy(at time.Time) bool {
	g.ending.Lock()
	defer g.ending.Unlock()
	return g.ctx.Err() == nil && g.c.SetReadDeadline(at) == nil
}

// poller watches the connections of all resting streams. Each rest waits for a single event. The
// poller has its own epoll instance, which Go's runtime polls like any other file, so waiting
// blocks a goroutine but not a thread. Each connection has a number that is never reused. So an
// event for a closed connection is never mistaken for one for a later connection with the same file
// descriptor.
type poller struct {
	file   *os.File
	raw    syscall.RawConn
	events [64]syscall.EpollEvent
	wg     sync.WaitGroup

	mu    sync.Mutex       // guards the following fields
	rests map[uint64]*Rest // streams that have rested and are not closed
	last  uint64
}

// newPoller returns a poller that runs until it is closed.
func newPoller() (*poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // so that package os polls it
		return nil, errors.Join(os.NewSyscallError("fcntl", err), syscall.Close(fd))
	}
	p := &poller{file: os.NewFile(uintptr(fd), "epoll"), rests: make(map[uint64]*Rest)}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, p.file.Close())
	}
	p.wg.Go(p.run)
	return p, nil
}

func (p *poller) close() {
	_ = p.file.Close() // wakes run
	p.wg.Wait()
}

// If many streams are resting, at least one of them nearly always has something to receive. A brief
// pause collects more events. It avoids most of the thread wake-ups, which account for most of the
// cost of a renewal.
const (
	many  = 256
	pause = 4 * time.Millisecond
)

// run wakes the streams that have something to receive.
func (p *poller) run() {
	n := 0
	try := func(fd uintptr) bool {
		n, _ = syscall.EpollWait(int(fd), p.events[:], 0)
		return n > 0
	}
	for p.raw.Read(try) == nil {
		rest := 0
		for i := range p.events[:n] {
			e := &p.events[i]
			p.mu.Lock()
			r := p.rests[uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32]
			rest = len(p.rests)
			p.mu.Unlock()
			if r != nil {
				r.end()
			}
		}
		if n < len(p.events) && rest >= many {
			time.Sleep(pause)
		}
	}
}

func (p *poller) newID() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	return p.last
}

// arm starts watching a connection. The kernel removes a connection when it is closed. The first
// event only disarms the connection, so the next rest takes only one system call.
func (p *poller) arm(r *Rest) error {
	op := syscall.EPOLL_CTL_MOD
	if !r.known {
		r.known, op = true, syscall.EPOLL_CTL_ADD
		p.mu.Lock()
		p.rests[r.id] = r
		p.mu.Unlock()
	}
	return p.control(r, op, syscall.EPOLLIN|syscall.EPOLLRDHUP|syscall.EPOLLONESHOT)
}

func (p *poller) forget(r *Rest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.rests, r.id)
}

func (p *poller) control(r *Rest, op int, events uint32) error {
	var err, fail error
	e := syscall.EpollEvent{Events: events, Fd: int32(r.id), Pad: int32(r.id >> 32)}
	outer := p.raw.Control(func(epoll uintptr) {
		err = r.raw.Control(func(fd uintptr) {
			fail = os.NewSyscallError("epoll_ctl", syscall.EpollCtl(int(epoll), op, int(fd), &e))
		})
	})
	return errors.Join(outer, err, fail)
}
