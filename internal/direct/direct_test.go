package direct

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"leasehold.dev/internal/intercept"
)

const echo = "/test.Echo/Stream"

// bytesCodec passes messages through unchanged.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "bytes" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = bytesCodec{}

// far is a server with one handler, at the far end of a connection.
type far struct {
	*bufconn.Listener
	t      *testing.T
	server *Server
}

func serve(t *testing.T, o Options, handle grpc.StreamHandler) *far {
	t.Helper()
	l := bufconn.Listen(1 << 12)
	return &far{l, t, serveOn(t, l, o, handle)}
}

// serveOn serves a handler until the test ends.
func serveOn(t *testing.T, l net.Listener, o Options, handle grpc.StreamHandler) *Server {
	t.Helper()
	o.Credentials, o.Codec = insecure.NewCredentials(), bytesCodec{}
	if o.MaxMessage == 0 {
		o.MaxMessage = 1 << 24
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	server := NewServer(o)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Echo",
		Streams: []grpc.StreamDesc{{
			StreamName: "Stream", Handler: handle, ServerStreams: true, ClientStreams: true,
		}},
	}, nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = l.Close()
		server.Stop()
		server.GracefulStop()
		if <-served == nil {
			t.Error("Serve returned no error")
		}
		if n := len(server.conns); n > 0 {
			t.Errorf("%d connections are not forgotten", n)
		}
	})
	return server
}

// dial returns the client's end of a connection.
func (f *far) dial() net.Conn {
	f.t.Helper()
	c, err := f.DialContext(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func (f *far) open(ctx context.Context) grpc.ClientStream {
	f.t.Helper()
	s, err := Open(ctx, f.dial(), echo, bytesCodec{})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// echoAll sends back every message that it receives.
func echoAll(_ any, s grpc.ServerStream) error {
	for {
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := s.SendMsg(&m); err != nil {
			return err
		}
	}
}

// recv returns the next message, or the error that the stream ended with.
func recv(s grpc.ClientStream) (m []byte, err error) {
	err = s.RecvMsg(&m)
	return m, err
}

// TestMessages checks that messages of all sizes arrive complete and in order, whether one read
// returns many messages or one message takes many reads. When the client stops sending, the stream
// ends. The test uses sizes close to the buffer sizes, and sends everything before reading.
func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, Options{}, echoAll)
		s := f.open(t.Context())
		sizes := []int{
			0, 1, 2, 500, 506, 507, 508, 511, 512, 513, 3, chunk - 6, chunk - 5, chunk - 1, chunk,
			chunk + 1, 4*chunk - 1, 4 * chunk, 5 << 20, 7,
		}
		go func() {
			for i, size := range sizes {
				m := bytes.Repeat([]byte{byte(i + 1)}, size)
				if err := s.SendMsg(&m); err != nil {
					t.Error(err)
				}
			}
			if err := s.CloseSend(); err != nil {
				t.Error(err)
			}
		}()
		for i, size := range sizes {
			m, err := recv(s)
			if err != nil || !bytes.Equal(m, bytes.Repeat([]byte{byte(i + 1)}, size)) {
				t.Fatalf("message %d of %d bytes: %d came, %v", i, size, len(m), err)
			}
		}
		for range 2 {
			if _, err := recv(s); !errors.Is(err, io.EOF) {
				t.Errorf("the end: %v", err)
			}
		}
	})
}

// TestInterceptors checks that a handler gets the client's metadata and address. Interceptors run
// in order before the handler, and return in reverse order. The client receives the server's
// header, and an error with all its details.
func TestInterceptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		by := func(name string) intercept.Stream {
			return func(
				s grpc.ServerStream, info *grpc.StreamServerInfo,
			) (grpc.ServerStream, intercept.Leave, error) {
				calls = append(calls, name+" "+info.FullMethod)
				return s, func(err error) error {
					calls = append(calls, name+" "+status.Code(err).String())
					return err
				}, nil
			}
		}
		refusal, err := status.New(codes.FailedPrecondition, "no: äöü\r\nx: y").WithDetails(
			&errdetails.ErrorInfo{Reason: "BECAUSE"})
		if err != nil {
			t.Fatal(err)
		}
		f := serve(t, Options{Interceptors: []intercept.Stream{by("a"), by("b")}},
			func(_ any, s grpc.ServerStream) error {
				md, _ := metadata.FromIncomingContext(s.Context())
				p, ok := peer.FromContext(s.Context())
				ok = ok && p.Addr != nil && p.AuthInfo != nil
				calls = append(calls, fmt.Sprint(md.Get("token"), md.Get("raw-bin"), ok))
				if err := s.SetHeader(metadata.Pairs("earlier", "1")); err != nil {
					return err
				}
				if err := s.SetHeader(metadata.Pairs("cluster", "7", "x-bin", "\x00\xff")); err != nil {
					return err
				}
				s.SetTrailer(metadata.Pairs("last", "word"))
				return refusal.Err()
			})
		ctx := metadata.AppendToOutgoingContext(t.Context(), "Token", "a", "token", "b", "raw-bin", "\n")
		s := f.open(ctx)
		_, err = recv(s)
		if got := status.Convert(err); got.String() != refusal.String() || len(got.Details()) != 1 {
			t.Errorf("refused by %v %v", got, got.Details())
		}
		header, _ := s.Header()
		if header.Get("cluster")[0] != "7" || header.Get("x-bin")[0] != "\x00\xff" ||
			len(header.Get("earlier")) != 1 ||
			s.Trailer().Get("last")[0] != "word" {
			t.Errorf("header %v, trailer %v", header, s.Trailer())
		}
		want := []string{
			"a " + echo, "b " + echo, "[a b] [\n] true", "b FailedPrecondition", "a FailedPrecondition",
		}
		if fmt.Sprint(calls) != fmt.Sprint(want) {
			t.Errorf("called: %q", calls)
		}
	})
}

// TestBadClients checks that if a client's data violates the protocol, it is rejected with an error
// text or the connection is closed. A silent client is disconnected after a time limit.
func TestBadClients(t *testing.T) {
	const first = Protocol + " " + echo + "\n"
	frame := func(flags byte, size uint32, data string) string {
		return string([]byte{
			flags, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size),
		}) + data
	}
	begin := first + frame(flagMetadata, 0, "")
	for name, of := range map[string]struct{ sent, want string }{
		"unknown method": {Protocol + " /x/Y\n" + frame(flagMetadata, 0, ""), "unknown method"},
		"no metadata":    {first + frame(flagMessage, 0, ""), "flags"},
		"bad metadata":   {first + frame(flagMetadata, 4, "a=b\n"), "name: value"},
		"much metadata":  {first + frame(flagMetadata, maxHead+1, ""), "metadata too long"},
		"many lines": {
			first + frame(flagMetadata, 3000, strings.Repeat("a: \r\n", 600)), "too many lines",
		},
		"unknown flags":        {begin + frame(1, 0, ""), "flags"},
		"metadata later":       {begin + frame(flagMetadata, 6, "a: b\r\n"), "flags"},
		"long message":         {begin + frame(flagMessage, 1<<24+1, ""), "the limit is 16777216"},
		"impossible message":   {begin + frame(flagMessage, 1<<31, ""), "frame too long"},
		"another protocol":     {"GET / HTTP/1.1\r\n", ""},
		"a very long line":     {strings.Repeat("a", 400), ""},
		"a message, and a cut": {begin + frame(flagMessage, 100, "abc"), ""},
		"nothing":              {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := serve(t, Options{}, echoAll)
				c := f.dial()
				go func() {
					// The server may close before reading everything.
					_, _ = c.Write([]byte(of.sent))
					if name == "a message, and a cut" {
						_ = c.Close()
					}
				}()
				sent, _ := io.ReadAll(c) // reads until the server closes
				_ = c.Close()
				r := reader{c: &given{sent: strings.TrimPrefix(string(sent), greeting)}}
				var err error
				for range 2 { // a header and the end
					if _, size, herr := r.head(); herr == nil {
						md, _ := r.metadata(size)
						_, err = decodeEnd(md)
					}
				}
				if text := status.Convert(err).Message(); (of.want != "") != (err != nil) ||
					!strings.Contains(text, of.want) {
					t.Errorf("the server says %v, want %q", err, of.want)
				}
			})
		})
	}
}

// given is a connection whose peer has already sent some data.
type given struct {
	net.Conn
	sent string
}

func (g *given) Read(b []byte) (int, error) {
	if g.sent == "" {
		return 0, io.EOF
	}
	n := copy(b, g.sent)
	g.sent = g.sent[n:]
	return n, nil
}

// TestUnfinished checks the memory for a message longer than a chunk. Whatever length is announced,
// a reader allocates little more than it has received. A writer uses at most one additional chunk.
func TestUnfinished(t *testing.T) {
	for _, size := range []int{513, chunk, chunk + 1, 100_000, 400_000, 3 << 20} {
		for _, came := range []int{0, 600, chunk, 100_000, 500_000, 2 << 20} {
			if came >= size {
				continue
			}
			b := &boundary{given: given{sent: strings.Repeat("x", came)}}
			held, heldMost := 0, 0
			r := reader{c: b, hold: func(bytes int) (func(), error) {
				held += bytes
				heldMost = max(heldMost, bytes)
				return func() { held -= bytes }, nil
			}}
			var m []byte
			if err := r.message(size, bytesCodec{}, &m); err == nil {
				t.Fatalf("%d of %d bytes are a message", came, size)
			}
			if most := 4*came + chunk; b.most > most {
				t.Errorf("%d of %d bytes have come, and there is memory for %d", came, size, b.most)
			}
			if heldMost > 4*came+chunk || heldMost < min(size, came) || held != 0 {
				t.Errorf("%d of %d bytes have come: %d were held, and are %d", came, size, heldMost, held)
			}
		}
	}
	if size := cap(*poolFor(chunk + 1).Get(chunk + 1)); size > 2*chunk {
		t.Errorf("a buffer of %d bytes for %d", size, chunk+1)
	}
}

// boundary records the size of the largest read buffer.
type boundary struct {
	given
	most int
}

func (b *boundary) Read(p []byte) (int, error) {
	b.most = max(b.most, cap(p))
	return b.given.Read(p)
}

// TestHeld checks that a message that does not arrive together with its header is charged to an
// account from before its memory is allocated until the handler receives it. The account can close
// the connection.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(ledger)
		f := serve(t, Options{Requests: a}, echoAll)
		s := f.open(t.Context())
		for _, size := range []int{10, 512, 513, chunk} {
			m := make([]byte, size)
			go func() { _ = s.SendMsg(&m) }()
			if _, err := recv(s); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if fmt.Sprint(a.all) != fmt.Sprint([]int{513, chunk}) || a.held != 0 {
			t.Errorf("accounted for: %v, and %d still", a.all, a.held)
		}
		a.refuse = status.Error(codes.ResourceExhausted, "no room")
		m := make([]byte, 600)
		go func() { _ = s.SendMsg(&m) }()
		if _, err := recv(s); status.Convert(err).Message() != "no room" {
			t.Errorf("without room: %v", err)
		}
		a.refuse = nil
		c := f.dial()
		s, err := Open(t.Context(), c, echo, bytesCodec{})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = c.Write([]byte{0, 0, 0, 4, 0, 1}) }()
		synctest.Wait()
		a.end()
		if _, err := recv(s); status.Code(err) != codes.Unavailable {
			t.Errorf("a connection that was closed: %v", err)
		}
		synctest.Wait()
		if a.held != 0 {
			t.Errorf("%d bytes are held", a.held)
		}
	})
}

// ledger implements Requests.
type ledger struct {
	all    []int
	held   int
	end    func()
	refuse error
	came   int
	wait   func(came int) error // if nil, Wait never blocks
	closed func()               // if nil, Close does nothing
}

func (a *ledger) Stream(
	ctx context.Context, _ string, end func(),
) (context.Context, Account, error) {
	a.end = end
	return ctx, a, nil
}

func (a *ledger) Hold(bytes int) (func(), error) {
	if a.refuse != nil {
		return nil, a.refuse
	}
	a.all = append(a.all, bytes)
	a.held += bytes
	return func() { a.held -= bytes }, nil
}

func (a *ledger) Wait() error {
	if a.wait == nil {
		return nil
	}
	return a.wait(a.came)
}
func (a *ledger) Came() { a.came++ }
func (a *ledger) Close() {
	if a.closed != nil {
		a.closed()
	}
}

// TestPaced checks that a stream receives only when its account permits it, and that it can end
// immediately while it waits for permission. The account admits three messages and then blocks
// until it is closed.
func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan struct{})
		a := &ledger{closed: sync.OnceFunc(func() { close(closed) })}
		a.wait = func(came int) error {
			if came == 3 {
				<-closed
				return errors.New("closed")
			}
			return nil
		}
		var served atomic.Int64
		f := serve(t, Options{Requests: a}, func(_ any, s grpc.ServerStream) error {
			go func() { // the handler returns while this goroutine receives
				for m := []byte(nil); s.RecvMsg(&m) == nil; {
					served.Add(1)
				}
			}()
			time.Sleep(time.Second)
			return status.Error(codes.Aborted, "it ends")
		})
		s := f.open(t.Context())
		for range 5 {
			if err := s.SendMsg(&[]byte{1}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := recv(s); status.Code(err) != codes.Aborted || served.Load() != 3 {
			t.Errorf("%d messages were received, want 3; the stream ended with %v", served.Load(), err)
		}
	})
}

// FuzzServer checks that the server returns no matter what a client sends.
func FuzzServer(f *testing.F) {
	f.Add([]byte(Protocol + " " + echo + "\n\x80\x00\x00\x00\x00\x00\x00\x00\x00\x02hi"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := NewServer(Options{
			Credentials: insecure.NewCredentials(), Codec: bytesCodec{}, MaxMessage: 1 << 16,
		})
		s.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Echo", Streams: []grpc.StreamDesc{{
			StreamName: "Stream", Handler: echoAll, ServerStreams: true, ClientStreams: true,
		}}}, nil)
		c := &mute{given{sent: string(data)}}
		s.enter(c)
		s.serve(c)
	})
}

// mute is a given connection that discards everything written to it.
type mute struct{ given }

func (*mute) Write(b []byte) (int, error) { return len(b), nil }
func (*mute) SetDeadline(time.Time) error { return nil }

func (*mute) SetReadDeadline(time.Time) error  { return nil }
func (*mute) SetWriteDeadline(time.Time) error { return nil }

func (*mute) Close() error         { return nil }
func (*mute) RemoteAddr() net.Addr { return nil }
func (*mute) LocalAddr() net.Addr  { return nil }
