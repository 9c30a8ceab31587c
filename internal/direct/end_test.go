package direct

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"leasehold.dev/test/tier"
)

// TestReceiveAfterEnd checks that once the handler has returned, a goroutine that is still
// receiving gets an error and no message. The client can still be sending, because it has not yet
// received the status.
func TestReceiveAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got [][]byte
		enough, ended := make(chan struct{}), make(chan error, 1)
		f := serve(t, Options{}, func(_ any, s grpc.ServerStream) error {
			go func() {
				for {
					var m []byte
					if err := s.RecvMsg(&m); err != nil {
						ended <- err
						return
					}
					got = append(got, m)
				}
			}()
			<-enough
			return status.Error(codes.PermissionDenied, "no more")
		})
		s := f.open(t.Context())
		synctest.Wait() // wait until the handler receives
		close(enough)
		synctest.Wait()
		for range 10 {
			m := bytes.Repeat([]byte{0, 0, 0, 0, 1, 'x'}, 1000) // looks like a series of messages
			if s.SendMsg(&m) != nil {
				break
			}
		}
		if err := <-ended; status.Code(err) != codes.Canceled || len(got) > 0 {
			t.Errorf("%d messages came after the end, and then: %v", len(got), err)
		}
		if _, err := recv(s); status.Code(err) != codes.PermissionDenied {
			t.Errorf("the client learned %v", err)
		}
	})
}

// TestPatience checks that Options.Patience limits only the time to open a stream. After a stream
// has ended, the client closes the connection. The server waits briefly for that.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, Options{Patience: time.Minute}, func(_ any, s grpc.ServerStream) error {
			var m []byte
			return s.RecvMsg(&m)
		})
		s := f.open(t.Context())
		c, far := net.Pipe() // as on TCP, deadlines take effect immediately
		defer c.Close()
		f.server.enter(far)
		go f.server.serve(far)
		if _, err := Open(t.Context(), c, echo, bytesCodec{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		m := []byte("late")
		if err := s.SendMsg(&m); err != nil {
			t.Fatal(err)
		}
		if _, err := recv(s); !errors.Is(err, io.EOF) {
			t.Errorf("after an hour: %v", err)
		}
		if _, err := s.(*clientStream).c.Write([]byte{0}); err == nil {
			t.Error("the client has not closed the connection")
		}
		if err := writeFrame(c, flagMessage, nil); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := io.ReadAll(c); err != nil || time.Since(start) != farewellTime {
			t.Errorf("the server has closed after %v: %v", time.Since(start), err)
		}
	})
}

// TestStopped checks that a stopped server closes new connections, and that calls of methods that
// do not stream in both directions are rejected.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, Options{}, echoAll)
		f.server.RegisterService(&grpc.ServiceDesc{
			ServiceName: "test.One", Streams: []grpc.StreamDesc{{
				StreamName: "Way", Handler: echoAll, ServerStreams: true,
			}},
		}, nil)
		s, err := Open(t.Context(), f.dial(), "/test.One/Way", bytesCodec{})
		if err == nil {
			_, err = recv(s)
		}
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("a method that streams one way: %v", err)
		}
		f.server.GracefulStop()
		c := f.dial()
		defer c.Close()
		if sent, err := io.ReadAll(c); err != nil || len(sent) > 0 {
			t.Errorf("a stopped server sends %q, %v", sent, err)
		}
	})
}

// TestLongRefusal checks that if the error text is too long or cannot be sent unchanged, the client
// receives the code and as much of the text as possible.
func TestLongRefusal(t *testing.T) {
	for _, text := range []string{"no: " + strings.Repeat("é", maxHead), "no: \xff\xfe"} {
		ok, err := decodeEnd(encodeEnd(status.Error(codes.FailedPrecondition, text)))
		if s := status.Convert(err); !ok || s.Code() != codes.FailedPrecondition ||
			!strings.HasPrefix(s.Message(), "no: ") {
			t.Errorf("%.10q became %v", text, err)
		}
		if line, err := encodeHead(encodeEnd(status.Error(codes.Aborted, text))); err != nil {
			t.Errorf("%d bytes cannot be sent: %v", len(line), err)
		}
	}
}

// TestStopWithoutStreams checks that a graceful stop does not wait for a connection without a
// stream, because it might never have one.
func TestStopWithoutStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, Options{}, echoAll)
		c := f.dial()
		defer c.Close()
		if _, err := c.Write([]byte(Protocol + " " + echo + "\n")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		start := time.Now()
		f.server.GracefulStop()
		if d := time.Since(start); d > 0 {
			t.Errorf("it waited for %v", d)
		}
	})
}

// TestHalfClosed checks that a client that closes its sending direction and reads nothing does not
// block the goroutine that is sending to it.
func TestHalfClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(Options{
		Credentials: insecure.NewCredentials(), Codec: bytesCodec{}, Patience: time.Minute,
	})
	ended := make(chan error)
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Echo", Streams: []grpc.StreamDesc{{
		StreamName: "Stream", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, g grpc.ServerStream) error {
			go func() {
				var m []byte
				_ = g.RecvMsg(&m) // the sending goroutine reports how the stream ended
			}()
			var err error
			for m := make([]byte, 1<<20); err == nil; {
				err = g.SendMsg(&m)
			}
			ended <- err
			return err
		},
	}}}, nil)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := Open(t.Context(), c, echo, bytesCodec{}); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("the handler learned %v", err)
	}
	_ = l.Close()
	<-served
	s.GracefulStop()
}

// TestStatusWhileSending checks that over TCP, too, a client that is still sending receives the
// status of its stream. An operating system resets a connection closed with unread bytes and
// discards data in flight.
func TestStatusWhileSending(t *testing.T) {
	tier.RealTime(t) // the server waits briefly for the client
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(Options{
		Credentials: insecure.NewCredentials(), Codec: bytesCodec{}, MaxMessage: 1 << 20,
		Patience: time.Minute,
	})
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Echo", Streams: []grpc.StreamDesc{{
		StreamName: "Stream", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, g grpc.ServerStream) error {
			var m []byte
			return errors.Join(g.RecvMsg(&m), status.Error(codes.ResourceExhausted, "enough"))
		},
	}}}, nil)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	for range 20 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		stream, err := Open(t.Context(), c, echo, bytesCodec{})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			m := make([]byte, 10_000)
			_ = stream.SendMsg(&m) // the server does not have to accept all messages
		}
		if _, err := recv(stream); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("the client learned %v", err)
		}
	}
	_ = l.Close()
	<-served
	s.GracefulStop()
}

// TestClientEnds checks that when the client cancels or its connection breaks, the handler's
// context ends even if the handler is neither receiving nor sending.
func TestClientEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error)
		f := serve(t, Options{}, func(_ any, s grpc.ServerStream) error {
			go func() {
				var m []byte
				ended <- s.RecvMsg(&m)
			}()
			<-s.Context().Done()
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		s := f.open(ctx)
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("the server: %v", err)
		}
		if _, err := recv(s); status.Code(err) != codes.Canceled {
			t.Errorf("the client: %v", err)
		}
		c := f.dial()
		if _, err := Open(t.Context(), c, echo, bytesCodec{}); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("the server, of a broken connection: %v", err)
		}
	})
}

// TestServerEnds checks that a client whose server disconnects gets Unavailable, and that a client
// still sending when the handler returns gets the handler's error.
func TestServerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, Options{}, func(_ any, s grpc.ServerStream) error {
			var m []byte
			if err := s.RecvMsg(&m); err != nil {
				return err
			}
			return status.Error(codes.ResourceExhausted, "enough")
		})
		s := f.open(t.Context())
		go func() {
			for {
				m := make([]byte, 1000)
				if s.SendMsg(&m) != nil {
					return
				}
			}
		}()
		if _, err := recv(s); status.Convert(err).Message() != "enough" {
			t.Errorf("the handler returned, and the client learned %v", err)
		}
		second := f.open(t.Context())
		f.server.Stop()
		if _, err := recv(second); status.Code(err) != codes.Unavailable {
			t.Errorf("the server stopped, and the client learned %v", err)
		}
	})
}
