package web

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// oneConn is a listener with a single connection.
type oneConn struct {
	net.Listener
	conns chan net.Conn
}

func (l oneConn) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l oneConn) Close() error { return nil }

func (l oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// askOnce serves h on one connection and sends it a single request. The connection closes when the
// test ends.
func askOnce(t *testing.T, h http.HandlerFunc) net.Conn {
	client, server := net.Pipe()
	conns := make(chan net.Conn, 1)
	conns <- server
	s := NewServer(t.Context(), h, nil)
	served := make(chan error, 1)
	go func() { served <- s.Serve(oneConn{conns: conns}) }()
	t.Cleanup(func() {
		close(conns)
		_ = client.Close()
		_ = s.Close()
		<-served
	})
	if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return client
}

// TestReaderThatDoesNotRead checks that a response is abandoned if the client does not read it for
// a while.
func TestReaderThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		askOnce(t, func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, 1<<20))
			ended <- err
		})
		time.Sleep(writePatience + time.Second)
		synctest.Wait()
		select {
		case err := <-ended:
			if err == nil {
				t.Error("an answer that nobody read was written")
			}
		default:
			t.Error("the answer still waits to be read")
		}
	})
}

// TestReaderThatReadsSlowly checks that a slow client receives all of a long response, and that a
// watcher receives an event that arrives after an hour.
func TestReaderThatReadsSlowly(t *testing.T) {
	const size = 256 << 10
	synctest.Test(t, func(t *testing.T) {
		client := askOnce(t, func(w http.ResponseWriter, _ *http.Request) {
			_, err := io.WriteString(w, strings.Repeat("x", size))
			w.(http.Flusher).Flush()
			time.Sleep(time.Hour)
			_, late := io.WriteString(w, "late")
			w.(http.Flusher).Flush()
			if err := errors.Join(err, late); err != nil {
				t.Error(err)
			}
		})
		resp, err := http.ReadResponse(bufio.NewReaderSize(client, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, part := 0, make([]byte, writePiece/4)
		for got < size {
			time.Sleep(writePatience / 8)
			n, err := resp.Body.Read(part)
			if err != nil {
				t.Fatalf("after %d bytes: %v", got, err)
			}
			got += n
		}
		if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "late" {
			t.Errorf("%q, %v", rest, err)
		}
	})
}
