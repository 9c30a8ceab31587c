package direct

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// TestBadServers checks that a client closes the connection if it receives a message before the
// header, or metadata after it that does not end the stream.
func TestBadServers(t *testing.T) {
	for name, sent := range map[string]string{
		"message first": "\x00\x00\x00\x00\x01x",
		"two headers":   "\x80\x00\x00\x00\x00\x80\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := pipe(t)
				defer far.Close()
				go func() {
					_, _ = far.Read(make([]byte, 1000))
					_, _ = far.Write([]byte(greeting + sent))
				}()
				s, err := Open(t.Context(), near, echo, bytesCodec{})
				if err != nil {
					t.Fatal(err)
				}
				if m, err := recv(s); status.Code(err) != codes.InvalidArgument {
					t.Errorf("%q, %v", m, err)
				}
				if _, err := io.ReadAll(far); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// pipe returns both ends of a connection.
func pipe(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l := bufconn.Listen(1 << 12)
	dialed := make(chan struct{})
	go func() {
		near, _ = l.DialContext(t.Context())
		close(dialed)
	}()
	far, err := l.Accept()
	<-dialed
	if err != nil || near == nil {
		t.Fatal(err)
	}
	return near, far
}

// TestOtherProtocols checks that a client detects that the other end speaks another protocol or
// does not respond.
func TestOtherProtocols(t *testing.T) {
	for name, answer := range map[string]string{
		"HTTP/1.1": "HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP/2": "\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"end": "", "another version": "leasehold/2\n", "a part": "lease",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := pipe(t)
				go func() {
					_, _ = far.Read(make([]byte, 1000))
					_, _ = far.Write([]byte(answer))
					_ = far.Close()
				}()
				if _, err := Open(t.Context(), near, echo, bytesCodec{}); !errors.Is(err, ErrNotSpoken) {
					t.Errorf("%v", err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(t)
		defer far.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Open(ctx, near, echo, bytesCodec{})
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("of one that says nothing: %v", err)
		}
	})
}
