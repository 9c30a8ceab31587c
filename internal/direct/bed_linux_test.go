package direct

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// waitable is a connection over a Socket, as a listener gives it.
type waitable struct {
	net.Conn
	socket net.Conn
}

func (w waitable) Socket() net.Conn { return w.socket }

// sockets is a listener whose connections are waitable.
type sockets struct {
	net.Listener
	conf     *tls.Config // nil for plain
	accepted chan net.Conn
}

func (l *sockets) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	s := NewSocket(c, raw)
	l.accepted <- s
	if l.conf == nil {
		return waitable{s, s}, nil
	}
	return waitable{tls.Server(s, l.conf), s}, nil
}

// sleepy answers what it receives, and rests whenever it can.
type sleepy struct {
	g    grpc.ServerStream
	rest *Rest
	bed  *bed
	once sync.Once
	wake chan struct{} // capacity 1

	sending sync.Mutex
	mu      sync.Mutex
	out     [][]byte
	inline  int // messages that were taken inline
	err     error
}

// handler returns a handler that is sleepy. Each rest that begins is told.
func (b *bed) handler() grpc.StreamHandler {
	return func(_ any, g grpc.ServerStream) error {
		s := &sleepy{g: g, rest: RestOf(g.Context()), bed: b, wake: make(chan struct{}, 1)}
		go s.receive()
		for {
			select {
			case <-s.wake:
			case <-g.Context().Done():
				return context.Cause(g.Context())
			}
			s.sending.Lock()
			err := errors.Join(s.sendAll(), s.rest.Drain())
			s.sending.Unlock()
			s.mu.Lock()
			err = errors.Join(s.err, err)
			s.mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
}

func (s *sleepy) sendAll() error {
	s.mu.Lock()
	out := s.out
	s.out = nil
	s.mu.Unlock()
	for _, m := range out {
		if err := s.g.SendMsg(&m); err != nil {
			return err
		}
	}
	return nil
}

func (s *sleepy) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sleepy) got(m []byte, inline bool) {
	s.mu.Lock()
	s.out = append(s.out, m)
	if inline {
		s.inline++
	}
	s.mu.Unlock()
	if !s.rest.Later() {
		s.notify()
	}
}

func (s *sleepy) over(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	s.notify()
}

func (s *sleepy) receive() {
	for {
		for !s.rest.Await(time.Millisecond) {
			if s.begin() {
				return
			}
		}
		var m []byte
		if err := s.g.RecvMsg(&m); err != nil {
			s.over(err)
			return
		}
		s.got(m, false)
	}
}

func (s *sleepy) begin() bool {
	if !s.sending.TryLock() {
		return false
	}
	defer s.sending.Unlock()
	s.mu.Lock()
	idle := len(s.out) == 0
	s.mu.Unlock()
	if !idle || !s.rest.Begin(s) {
		return false
	}
	told := s.bed.again
	s.once.Do(func() { told = s.bed.rested })
	told <- s
	return true
}

// Next implements Sleeper.
func (s *sleepy) Next(inline bool) {
	if !inline {
		s.receive()
		return
	}
	var m []byte
	if err := s.g.RecvMsg(&m); err != nil {
		s.rest.End()
		s.over(err)
		return
	}
	s.got(m, true)
}

// Answer implements Sleeper.
func (s *sleepy) Answer(inline bool) {
	if !inline || !s.sending.TryLock() {
		s.notify()
		return
	}
	defer s.sending.Unlock()
	if err := s.sendAll(); err != nil {
		s.over(err)
	} else if s.rest.Full() {
		s.notify()
	}
}

// bed is a server whose streams rest.
type bed struct {
	t      *testing.T
	server *Server
	l      *sockets
	near   *tls.Config
	rested chan *sleepy // for the first time
	again  chan *sleepy

	mu  sync.Mutex // guards what follows
	end func()     // closes the connection that has had a long message last
}

// Receive implements Requests.
func (b *bed) Receive(_ string, _ int, end func()) (done func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end = end
	return func() {}, nil
}

func newBed(t *testing.T, encrypted bool) *bed {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{
		t: t, rested: make(chan *sleepy, 1<<12), again: make(chan *sleepy, 1<<12),
		l: &sockets{Listener: inner, accepted: make(chan net.Conn, 1<<12)},
	}
	if encrypted {
		https := httptest.NewTLSServer(nil)
		https.Close()
		b.l.conf = https.TLS.Clone()
		b.l.conf.NextProtos = nil
		b.near = &tls.Config{InsecureSkipVerify: true} // it is not about who it is
	}
	b.server = serveOn(t, b.l, Options{Requests: b}, b.handler())
	return b
}

// dial returns the client's end of a connection.
func (b *bed) dial() net.Conn {
	b.t.Helper()
	c, err := net.Dial("tcp", b.l.Addr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	if b.near != nil {
		c = tls.Client(c, b.near)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

// open opens a stream over a connection, and waits until it rests.
func (b *bed) open(c net.Conn) (grpc.ClientStream, *sleepy) {
	b.t.Helper()
	s, err := Open(b.t.Context(), c, echo, bytesCodec{})
	if err != nil {
		b.t.Fatal(err)
	}
	return s, <-b.rested
}

func both(t *testing.T, f func(*testing.T, *bed)) {
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprintf("encrypted=%t", encrypted), func(t *testing.T) {
			f(t, newBed(t, encrypted))
		})
	}
}

func say(t *testing.T, s grpc.ClientStream, text string) {
	t.Helper()
	m := []byte(text)
	if err := s.SendMsg(&m); err != nil {
		t.Fatal(err)
	}
	hear(t, s, text)
}

func hear(t *testing.T, s grpc.ClientStream, text string) {
	t.Helper()
	if m, err := recv(s); err != nil || string(m) != text {
		t.Fatalf("%.60q, %v, want %.60q", m, err, text)
	}
}
