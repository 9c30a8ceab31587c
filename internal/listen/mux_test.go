package listen

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener. Accept returns whatever is sent to it, either a connection or an error.
type pipes struct {
	next   chan any
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes {
	return &pipes{next: make(chan any), closed: make(chan struct{})}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case v := <-p.next:
		if err, bad := v.(error); bad {
			return nil, err
		}
		return v.(net.Conn), nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return addr("pipes") }

// dial connects to the listener.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.next <- server
	return client
}

// muxed starts a Mux over pipes. Both are closed when the test ends.
func muxed(t *testing.T, opts MuxOptions) (*Mux, *pipes) {
	t.Helper()
	m, l := NewMux(opts), newPipes()
	served := make(chan error, 1)
	go func() { served <- m.Serve(l, nil) }()
	t.Cleanup(func() {
		_ = m.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return m, l
}

const http2Hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// TestMuxRoutes checks that the first bytes select the listener, no matter how they are split, and
// that no byte is lost.
func TestMuxRoutes(t *testing.T) {
	for _, c := range []struct{ send, to string }{
		{http2Hello + "frames", "grpc"},
		{"leasehold/1 /a/B\n", "direct"},
		{"leasehold/10 /a/B\n", "http"},
		{"GET / HTTP/1.1\r\n\r\n", "http"},
		{"POST /v3/kv/put HTTP/1.1\r\n", "http"},
		{"P", "http"}, // the stream ends after this byte; see below
		{"PRI * HTTP/1.1\r\n\r\n", "http"},
		{"PUT /", "http"},
		{"\x16\x03\x01", "http"}, // TLS on a plain port; net/http answers it
	} {
		for _, size := range []int{len(c.send), 1} {
			synctest.Test(t, func(t *testing.T) {
				m, l := muxed(t, MuxOptions{Direct: true})
				from := map[string]net.Listener{
					"grpc": m.GRPC(), "direct": m.Direct(), "http": m.HTTP(),
				}[c.to]
				client := l.dial()
				go func() {
					defer client.Close()
					for _, part := range chunks(c.send, size) {
						if _, err := io.WriteString(client, part); err != nil {
							return
						}
					}
				}()
				if c.send == "P" {
					// the connection is dropped: it is never accepted, and nothing is left behind
					synctest.Wait()
					return
				}
				conn, err := from.Accept()
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(conn)
				if err != nil || string(got) != c.send {
					t.Errorf("%q in pieces of %d: read %q, %v", c.send, size, got, err)
				}
			})
		}
	}
}

func chunks(s string, n int) (parts []string) {
	for len(s) > 0 {
		k := min(n, len(s))
		parts, s = append(parts, s[:k]), s[k:]
	}
	return parts
}

// TestMuxWithoutDirect checks that if streams without HTTP/2 are not served, a request for one goes
// to the HTTP server, whose response explains this.
func TestMuxWithoutDirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := muxed(t, MuxOptions{})
		client := l.dial()
		defer client.Close()
		go func() { _, _ = io.WriteString(client, "leasehold/1 /a/B\n") }()
		if _, err := m.HTTP().Accept(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMuxDeadline checks that a connection that sends nothing, or stops in the middle of the
// preface, is closed at the deadline, and that its goroutine ends. Once the protocol is recognized,
// there is no deadline.
func TestMuxDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := muxed(t, MuxOptions{SniffTimeout: 3 * time.Second})
		silent, slow, good := l.dial(), l.dial(), l.dial()
		defer good.Close()
		if _, err := io.WriteString(slow, "PRI * "); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(good, "GET") }()
		conn, err := m.HTTP().Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for _, c := range []net.Conn{silent, slow} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("read of a half-open connection: %v, want EOF", err)
			}
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("closed after %s, want 3s", d)
		}
		time.Sleep(time.Hour) // virtual time
		go func() { _, _ = io.WriteString(good, "more") }()
		if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
			t.Errorf("a known connection after an hour: %v", err)
		}
	})
}

// TestMuxClose checks that Close immediately ends pending connections, whether they wait for bytes
// or for a server, and that Accept returns an error.
func TestMuxClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := muxed(t, MuxOptions{})
		silent, untaken := l.dial(), l.dial()
		go func() { _, _ = io.WriteString(untaken, "GET ") }()
		synctest.Wait()
		start := time.Now()
		if err := m.GRPC().Close(); err != nil { // like a grpc.Server
			t.Fatal(err)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("Close took %s", d)
		}
		for _, c := range []net.Conn{silent, untaken} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("read after Close: %v", err)
			}
		}
		if _, err := m.HTTP().Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
		if err := m.Serve(newPipes(), nil); err != nil {
			t.Errorf("Serve after Close: %v", err)
		}
	})
}

// TestMuxAcceptErrors checks that running out of file descriptors neither stops the member nor
// makes it spin. A broken listener stops it.
func TestMuxAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := NewMux(MuxOptions{}), newPipes()
		served := make(chan error, 1)
		go func() { served <- m.Serve(l, nil) }()
		start := time.Now()
		for range 10 {
			l.next <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
		}
		client := l.dial()
		if d := time.Since(start); d < time.Second || d > 10*time.Second {
			t.Errorf("ten failures took %s: no back-off, or too much", d)
		}
		go func() { _, _ = io.WriteString(client, "GET") }()
		if _, err := m.HTTP().Accept(); err != nil {
			t.Fatalf("after the failures: %v", err)
		}
		broken := errors.New("broken")
		l.next <- broken
		if err := <-served; !errors.Is(err, broken) {
			t.Errorf("Serve of a broken listener: %v", err)
		}
		_ = m.Close()
		_ = client.Close()
	})
}

// FuzzSniff checks that the server reads exactly what the client sends, no matter how it is split.
// HTTP/2 is selected only by its preface, and the protocol without HTTP/2 only by its first word.
func FuzzSniff(f *testing.F) {
	f.Add([]byte(http2Hello), byte(3))
	f.Add([]byte("GET / HTTP/1.1\r\n"), byte(1))
	f.Add([]byte("PRI * HTTP/2.1"), byte(5))
	f.Add([]byte("leasehold/1 /leasehold.v1.StreamService/Open\n"), byte(2))
	f.Add([]byte("leasehold/10"), byte(7))
	f.Fuzz(func(t *testing.T, data []byte, size byte) {
		r := &pieces{data: data, size: max(int(size), 1)}
		head, start, err := sniff(r)
		for _, of := range [][]byte{preface, directly} {
			if want := bytes.HasPrefix(data, of); bytes.Equal(start, of) != want {
				t.Fatalf("%q: begins with %q: %t, want %t", data, of, !want, want)
			}
		}
		if err != nil {
			if !bytes.HasPrefix(preface, data) && !bytes.HasPrefix(directly, data) {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		rest, _ := io.ReadAll(&replay{Conn: r, head: head})
		if !bytes.Equal(rest, data) {
			t.Fatalf("%q: the server reads %q", data, rest)
		}
	})
}

// pieces is a connection that returns data in pieces of a given size.
type pieces struct {
	net.Conn
	data []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.data[:min(p.size, len(p.data))])
	p.data = p.data[n:]
	return n, nil
}
