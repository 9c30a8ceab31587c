package listen

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// gateway is an http.Server that handles each request with one call to the service, over a single
// connection. It writes the response of the call three times.
type gateway struct {
	http   *pipes
	loop   net.Conn
	failed atomic.Int64
}

func newGateway(t *testing.T, s *megabytes) (*gateway, *Answers) {
	l, all := s.listen(t)
	g := &gateway{http: newPipes()}
	conn := dialService(t, func() net.Conn {
		g.loop = l.dial()
		return g.loop
	})
	handler := all.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b []byte
		err := conn.Invoke(r.Context(), "/m/Call", []byte{}, &b)
		if err != nil {
			g.failed.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(bytes.Repeat(b, 3))
	}))
	h := &http.Server{
		Handler: writing(handler), ConnContext: all.ConnContext, Protocols: new(http.Protocols),
	}
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- h.Serve(g.http) }()
	t.Cleanup(func() {
		_ = h.Close()
		<-served
	})
	return g, all
}

// writing wraps h to record how much of its responses the client has read.
func writing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(noted{w, r.Context()}, r)
	})
}

type noted struct {
	http.ResponseWriter
	ctx context.Context
}

// Write implements http.ResponseWriter.
func (w noted) Write(p []byte) (n int, err error) {
	for {
		wrote, err := w.ResponseWriter.Write(p[n:min(n+largeAnswer, len(p))])
		n += wrote
		Wrote(w.ctx, wrote)
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// dialService returns a connection to the service that is closed when the test ends.
func dialService(t *testing.T, dial func() net.Conn) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///service",
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return dial(), nil
		}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(1<<30), grpc.ForceCodecV2(rawCodec{})),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask makes a request on a new connection and does not read the response.
func (g *gateway) ask(t *testing.T) net.Conn {
	t.Helper()
	c := g.http.dial()
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c
}

// TestGatewayUnread checks that gateway clients that do not read make the member hold only a
// bounded number of bytes and do not delay others. Closing them does not end the calls of other
// clients.
func TestGatewayUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, all := newGateway(t, &megabytes{size: 3 * megabyte, room: true})
		first := g.ask(t)
		loop := g.loop
		for range 39 {
			time.Sleep(time.Millisecond)
			g.ask(t)
			if n := all.bytes(); n > allUnread/2+maxUnread {
				t.Fatalf("%d bytes are unread", n)
			}
		}
		if n := all.bytes(); n < allUnread/8 {
			t.Errorf("only %d bytes are unread", n)
		}
		time.Sleep((stalledBeats + 1) * beatInterval)
		synctest.Wait()
		if n := all.bytes(); n > allUnread {
			t.Errorf("%d bytes are unread when others have made room", n)
		}
		if n, err := io.Copy(io.Discard, first); err != nil || n >= 9*megabyte {
			t.Errorf("the first connection was not closed: %d bytes, %v", n, err)
		}
		client := http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return g.http.dial(), nil
			},
			DisableKeepAlives: true,
		}}
		resp, err := client.Get("http://h/")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || n != 9*megabyte {
			t.Errorf("a client that reads has %d bytes, %v", n, err)
		}
		if g.failed.Load() > 0 || g.loop != loop {
			t.Errorf("%d calls failed; the gateway has the same connection: %v", g.failed.Load(),
				g.loop == loop)
		}
	})
}

// TestGatewayUnreadOfOne checks that one gateway client can leave only a bounded amount unread, and
// that it does not delay other clients.
func TestGatewayUnreadOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &megabytes{room: true}
		g, all := newGateway(t, s)
		client := newAnswersClient(t, g.http.dial())
		client.ask("Call", 100)
		const most = 2 * maxUnread
		if n := all.bytes(); n < maxUnread || n > most {
			t.Errorf("%d bytes are unread", n)
		}
		n := s.evaluated.Load()
		g.ask(t)
		if s.evaluated.Load() != n+1 {
			t.Error("the call of another client was not evaluated")
		}
		client.close()
		synctest.Wait()
		if n := all.bytes(); n != jsonFactor*megabyte {
			t.Errorf("%d bytes are unread in the end", n)
		}
		if n := len(all.visits); n != 1 {
			t.Errorf("%d requests are under way", n)
		}
	})
}
