package listen

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"leasehold.dev/test/certs"
)

// scheduler simulates Go's scheduler: a goroutine that yields waits until all ready goroutines have
// run.
type scheduler struct {
	mu          sync.Mutex
	ready, most int
}

func (s *scheduler) start(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready += n
	s.most = max(s.most, s.ready)
}

func (s *scheduler) yield() {
	s.mu.Lock()
	n := s.ready
	s.ready = 0
	s.mu.Unlock()
	<-time.After(time.Duration(n) * 50 * time.Microsecond)
}

// bytesConn is a connection that already contains everything that its client sends.
type bytesConn struct {
	net.Conn
	io.Reader
}

// Read implements net.Conn.
func (c bytesConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// TestCallsOpenedAtOnce checks that no matter how many calls clients open at the same time, only a
// few goroutines are runnable, so that other work is not delayed. Each reader starts a goroutine
// per call, as gRPC does, for 1,000 calls per connection.
func TestCallsOpenedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conns, calls = 10, 1000
		var sent bytes.Buffer
		w := http2.NewFramer(&sent, nil)
		for i := range calls {
			err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), EndHeaders: true})
			if err != nil {
				t.Fatal(err)
			}
		}
		var s scheduler
		p := newPace(s.yield)
		all := withStrangers()
		var readers sync.WaitGroup
		for range conns {
			from := all.stranger("10.0.0.1:1")
			from.markKnown()
			f := &frames{conn: bytesConn{Reader: bytes.NewReader(sent.Bytes())}, sender: from.sender, pace: p}
			readers.Go(func() {
				r := http2.NewFramer(nil, f)
				for {
					if _, err := r.ReadFrame(); err != nil {
						return
					}
					s.start(1)
				}
			})
		}
		readers.Wait()
		if most := conns * fewOpens; s.most > most {
			t.Errorf("%d goroutines were ready at a time, want at most %d", s.most, most)
		}
	})
}

// TestConnectionsOpenedAtOnce checks the same for connections.
func TestConnectionsOpenedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := muxed(t, MuxOptions{})
		var s scheduler
		m.pace = newPace(s.yield)
		const conns, each = 100, 5 // goroutines per connection
		served := make(chan struct{})
		go func() {
			defer close(served)
			for range conns {
				c, err := m.GRPC().Accept()
				if err != nil {
					t.Error(err)
					return
				}
				s.start(each)
				defer c.Close() //nolint:errcheck // nothing is lost
			}
		}()
		for range conns {
			c := l.dial()
			go c.Write([]byte(http2.ClientPreface)) //nolint:errcheck // the server closes it
			defer c.Close()                         //nolint:errcheck // nothing is lost
		}
		<-served
		if s.most > each {
			t.Errorf("%d goroutines were ready at a time, want at most %d", s.most, each)
		}
	})
}

// TestMuxAcceptsWhatIsServed checks that a Mux accepts no more connections while many wait for
// their server to accept them, or for a slot to compute their handshake.
func TestMuxAcceptsWhatIsServed(t *testing.T) {
	t.Run("server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, l := muxed(t, MuxOptions{})
			_, _ = l.dial().Write(preface) // from here on, the server accepts connections
			if c, err := m.GRPC().Accept(); err == nil {
				_ = c.Close()
			}
			more := fillMux(t, l, func(c net.Conn) { _, _ = c.Write(preface) })
			for range mostWaiting + 2 {
				c, err := m.GRPC().Accept()
				if err != nil {
					t.Fatal(err)
				}
				_ = c.Close()
			}
			more()
		})
	})
	t.Run("server that does not accept yet", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, l := muxed(t, MuxOptions{})
			for range 2 * mostWaiting {
				_, _ = l.dial().Write(preface)
			}
			go l.dial().Write([]byte("GET / HTTP/1.1\r\n\r\n")) //nolint:errcheck // the test ends it
			c, err := m.HTTP().Accept()
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
		})
	})
	t.Run("handshake", func(t *testing.T) {
		conf, err := serverOf(certs.New(t)).Server()
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			m, l := NewMux(MuxOptions{}), newPipes()
			m.handshakes = make(chan struct{}, 1)
			m.handshakes <- struct{}{} // the slot of another handshake that is computing
			go m.Serve(l, conf)        //nolint:errcheck // the test ends it
			defer m.Close()            //nolint:errcheck // nothing is lost
			more := fillMux(t, l, func(net.Conn) {})
			<-m.handshakes
			more()
		})
	})
}

// fillMux dials until the maximum number of connections is waiting, and then twice more. It returns
// a function that waits until those two are accepted.
func fillMux(t *testing.T, l *pipes, begin func(net.Conn)) (more func()) {
	for range mostWaiting {
		begin(l.dial())
		synctest.Wait()
	}
	// The Mux might have been ready for one of the two before the last connection was waiting.
	accepted := make(chan struct{}, 2)
	for range cap(accepted) {
		go func() {
			begin(l.dial())
			accepted <- struct{}{}
		}()
	}
	synctest.Wait()
	if len(accepted) == cap(accepted) {
		t.Errorf("two more connections are accepted while %d are waiting", mostWaiting)
	}
	return func() {
		for range cap(accepted) {
			<-accepted
		}
	}
}
