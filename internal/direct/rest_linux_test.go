package direct

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc"
)

// withSocket wraps a connection that has a socket, as a listener does.
type withSocket struct{ net.Conn }

// Socket returns the wrapped connection, or the one below it if that is a TLS connection.
func (c withSocket) Socket() net.Conn {
	if t, ok := c.Conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c.Conn
}

// restBench serves streams that echo messages and rest after each one.
type restBench struct {
	*Server
	rests chan bool // receives a value when a stream begins to rest
	ended chan error
	dial  func() net.Conn
}

func newRestBench(t *testing.T, encrypted bool) *restBench {
	b := &restBench{rests: make(chan bool), ended: make(chan error)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	plain := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	b.dial = plain
	wrap := func(c net.Conn) net.Conn { return c }
	if encrypted {
		https := httptest.NewTLSServer(nil)
		t.Cleanup(https.Close)
		conf := &tls.Config{Certificates: https.TLS.Certificates}
		wrap = func(c net.Conn) net.Conn { return tls.Server(c, conf) }
		b.dial = func() net.Conn {
			return tls.Client(plain(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test
		}
	}
	b.Server = serveOn(t, wrapped{l, wrap}, Options{}, b.echo)
	return b
}

type wrapped struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (l wrapped) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return withSocket{l.wrap(c)}, nil
}

// echo echoes what it receives, and rests once nothing more has arrived.
func (b *restBench) echo(_ any, g grpc.ServerStream) error {
	rest, over := RestOf(g.Context()), make(chan error, 1)
	var receive func()
	receive = func() {
		for woken := true; woken || rest.Await(0); woken = false {
			var m []byte
			err := g.RecvMsg(&m)
			if err == nil {
				err = g.SendMsg(&m)
			}
			if err != nil {
				over <- err
				return
			}
		}
		if !rest.Begin(receive) {
			over <- errors.New("it cannot rest")
			return
		}
		b.rests <- true
	}
	if rest.Begin(receive) {
		b.rests <- true
	}
	err := <-over
	b.ended <- err
	return err
}

// TestRests checks that a stream rests while its client is silent, with and without TLS. It resumes
// with the next data, no matter how the data is split. It ends when the client stops sending or
// disconnects, or when the server stops.
func TestRests(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		for name, end := range map[string]func(b *restBench, s grpc.ClientStream, c net.Conn){
			"no more":  func(_ *restBench, s grpc.ClientStream, _ net.Conn) { _ = s.CloseSend() },
			"hangs up": func(_ *restBench, _ grpc.ClientStream, c net.Conn) { _ = c.Close() },
			"stops":    func(b *restBench, _ grpc.ClientStream, _ net.Conn) { b.Stop() },
		} {
			b := newRestBench(t, encrypted)
			c := b.dial()
			s, err := Open(t.Context(), c, echo, bytesCodec{})
			if err != nil {
				t.Fatal(err)
			}
			<-b.rests
			for size := range 2000 {
				if size%100 > 3 && size%100 < 97 {
					continue
				}
				sent := make([]byte, size)
				if err := s.SendMsg(&sent); err != nil {
					t.Fatal(err)
				}
				answered := make(chan error)
				go func() {
					var m []byte
					err := s.RecvMsg(&m)
					if err == nil && len(m) != size {
						err = io.ErrShortBuffer
					}
					answered <- err
				}()
				for done := false; !done; {
					select {
					case err := <-answered:
						if err != nil {
							t.Fatalf("%s, %d bytes: %v", name, size, err)
						}
						done = true
					case <-b.rests:
					}
				}
			}
			end(b, s, c)
			for done := false; !done; {
				select {
				case <-b.rests:
				case <-b.ended:
					done = true
				}
			}
		}
	}
}

// TestRestsOfManyConnections checks that each message reaches the stream of its own connection,
// even though file descriptors are reused.
func TestRestsOfManyConnections(t *testing.T) {
	b := newRestBench(t, false)
	go func() {
		for range b.rests {
		}
	}()
	for i := range 200 {
		s, err := Open(t.Context(), b.dial(), echo, bytesCodec{})
		if err != nil {
			t.Fatal(err)
		}
		want := []byte{byte(i), byte(i >> 8)}
		var got []byte
		if err := s.SendMsg(&want); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&got); err != nil || string(got) != string(want) {
			t.Fatalf("connection %d: %v, %v", i, got, err)
		}
		_ = s.CloseSend()
		<-b.ended
	}
}
