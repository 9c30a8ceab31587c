package listen

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"leasehold.dev/internal/intercept"
)

const megabyte = 1 << 20

// bytes returns the total number of unread bytes on all connections.
func (all *Answers) bytes() int64 {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.unread
}

func newAnswers() *Answers { return NewAnswers(slog.New(slog.DiscardHandler)) }

// megabytes is a service whose responses and messages are size bytes each, or a megabyte if size is
// 0.
type megabytes struct {
	evaluated atomic.Int64
	size      int
	messages  int  // messages per stream; 0 means no limit
	room      bool // calls request room
	codec     rawCodec
}

func (s *megabytes) answer() sized { return make(sized, cmp.Or(s.size, megabyte)) }

// sized is a response that reports its size, like all real ones.
type sized []byte

func (s sized) Size() int { return len(s) }

// rawCodec encodes bytes without changes.
type rawCodec struct {
	pause         func() // if not nil, simulates the time to compute and encode a response
	encoded       *atomic.Int64
	current, most *atomic.Int64 // number of messages being encoded
}

func (rawCodec) Name() string { return "raw" }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(sized)
	if !ok {
		b = v.([]byte)
	}
	if c.encoded != nil {
		c.encoded.Add(int64(len(b)))
		c.most.Store(max(c.most.Load(), c.current.Add(1)))
		defer c.current.Add(-1)
	}
	if c.pause != nil {
		c.pause()
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if b, ok := v.(*[]byte); ok {
		*b = data.Materialize()
	}
	return nil
}

func (s *megabytes) call(
	ctx context.Context, decode func(any) error, between grpc.UnaryServerInterceptor,
) (any, error) {
	if err := decode(nil); err != nil {
		return nil, err
	}
	return between(ctx, nil, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
		if s.room {
			if err := Room(ctx); err != nil {
				return nil, err
			}
		}
		s.evaluated.Add(1)
		if s.codec.pause != nil {
			s.codec.pause()
		}
		return s.answer(), nil
	})
}

func (s *megabytes) stream(_ any, stream grpc.ServerStream) error {
	for i := 0; s.messages == 0 || i < s.messages; i++ {
		s.evaluated.Add(1)
		if err := stream.SendMsg(s.answer()); err != nil {
			return err
		}
	}
	return nil
}

// serve returns a raw connection to the service, and the service's Answers. All of it is closed
// when the test ends.
func (s *megabytes) serve(t *testing.T) (*answersClient, *Answers) {
	l, all := s.listen(t)
	conn := l.dial()
	t.Cleanup(func() { _ = conn.Close() })
	return newAnswersClient(t, conn), all
}

// listen runs the service until the test ends.
func (s *megabytes) listen(t *testing.T) (*pipes, *Answers) {
	all := newAnswers()
	s.codec.encoded = new(atomic.Int64)
	s.codec.current, s.codec.most = new(atomic.Int64), new(atomic.Int64)
	gs := grpc.NewServer(grpc.Creds(Credentials(nil, all)), grpc.UnaryInterceptor(all.Unary(nil)),
		grpc.StreamInterceptor(intercept.Stream(all.Stream).Whole()),
		grpc.ForceServerCodecV2(all.Codec(s.codec)))
	gs.RegisterService(&grpc.ServiceDesc{
		ServiceName: "m", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(
			_ any, ctx context.Context, decode func(any) error, between grpc.UnaryServerInterceptor,
		) (any, error) {
			return s.call(ctx, decode, between)
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Stream", Handler: s.stream, ServerStreams: true}},
	}, s)
	l := newPipes()
	served := make(chan error, 1)
	go func() { served <- gs.Serve(l) }()
	t.Cleanup(func() {
		gs.Stop()
		<-served
	})
	return l, all
}

// answersClient implements HTTP/2 itself, because a library would read the responses.
type answersClient struct {
	t      *testing.T
	close  func() error
	framer *http2.Framer
	data   atomic.Int64 // number of response bytes read

	timeout string // of calls; "" means none
	silent  bool   // calls send no message
}

func newAnswersClient(t *testing.T, conn net.Conn) *answersClient {
	c := &answersClient{t: t, close: conn.Close, framer: http2.NewFramer(conn, conn)}
	c.framer.SetMaxReadFrameSize(1 << 24)
	go func() {
		for {
			frame, err := c.framer.ReadFrame()
			if err != nil {
				return
			}
			if d, ok := frame.(*http2.DataFrame); ok {
				c.data.Add(int64(len(d.Data())))
			}
		}
	}()
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	c.window(0)
	return c
}

// window lets the server send this many bytes on each stream.
func (c *answersClient) window(bytes uint32) {
	c.t.Helper()
	err := c.framer.WriteSettings(
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: bytes})
	if err != nil {
		c.t.Fatal(err)
	}
}

// ask makes a number of calls to a method without waiting for the responses.
func (c *answersClient) ask(method string, calls int) {
	c.t.Helper()
	for i := range calls {
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		for _, f := range [][2]string{
			{":method", "POST"},
			{":scheme", "http"},
			{":path", "/m/" + method},
			{":authority", "m"},
			{"content-type", "application/grpc"},
			{"te", "trailers"},
			{"grpc-timeout", c.timeout},
		} {
			if f[1] != "" {
				_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
			}
		}
		id := uint32(2*i + 1)
		err := c.framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: b.Bytes(), EndHeaders: true,
		})
		if err == nil && !c.silent {
			err = c.framer.WriteData(id, true, make([]byte, 5))
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// TestUnreadResponses checks that a connection that does not read makes the server hold only a
// bounded number of bytes, even if the connection's calls all ask for room at the same time. Calls
// wait only for a limited time, and everything is released with the connection.
func TestUnreadResponses(t *testing.T) {
	for _, c := range []struct {
		name   string
		method string
		s      *megabytes
		most   int64 // maximum number of calls that are evaluated
		bytes  int64 // maximum number of bytes encoded
	}{
		{
			"room", "Call", &megabytes{room: true},
			maxUnread/megabyte + 1, maxUnread + megabyte,
		},
		{
			"no room asked for", "Call", &megabytes{},
			150, maxUnread + megabyte,
		},
		// Streams exceed the limit only when several of them check for room at the same time.
		{"streams", "Stream", &megabytes{}, 300, 2 * maxUnread},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.method == "Call" {
					c.s.codec.pause = func() { time.Sleep(time.Millisecond) }
				}
				client, all := c.s.serve(t)
				client.ask(c.method, 150)
				time.Sleep(time.Second)
				synctest.Wait()
				if n := c.s.evaluated.Load(); n < maxUnread/megabyte-1 || n > c.most {
					t.Errorf("%d calls were evaluated", n)
				}
				if n := all.bytes(); n < maxUnread-megabyte {
					t.Errorf("only %d bytes are unread", n)
				}
				time.Sleep((patientBeats + 1) * beatInterval)
				synctest.Wait()
				if n := c.s.codec.encoded.Load(); n > c.bytes {
					t.Errorf("%d bytes were encoded", n)
				}
				client.close()
				synctest.Wait()
				if unread, n := all.bytes(), len(all.accounts); unread != 0 || n != 0 {
					t.Errorf("%d bytes are unread, %d connections open", unread, n)
				}
			})
		})
	}
}

// TestLargeAnswersAtOnce checks that a client that reads receives all its responses without delay,
// even if together they exceed the limit on unread bytes.
func TestLargeAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, size = 16, 20 * megabyte
		s := &megabytes{size: size, room: true}
		s.codec.pause = func() { time.Sleep(time.Millisecond) }
		client, all := s.serve(t)
		if err := client.framer.WriteWindowUpdate(0, 1<<30); err != nil {
			t.Fatal(err)
		}
		client.window(size + 5)
		client.ask("Call", calls)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := client.data.Load(); n != calls*(size+5) {
			t.Errorf("%d bytes were answered", n)
		}
		if n := all.bytes(); n != 0 {
			t.Errorf("%d bytes are unread", n)
		}
	})
}

// TestReservationIsReleasedOnce checks that memory is released exactly once, whether gRPC has
// written the response, given up on it or silently dropped it.
func TestReservationIsReleasedOnce(t *testing.T) {
	all := newAnswers()
	all.others.reserve(5)
	encode := func() mem.BufferSlice {
		c := &call{Context: t.Context(), account: all.others, message: make([]byte, megabyte)}
		data, err := all.Codec(rawCodec{}).Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	encode().Free()
	if n := all.bytes(); n != 5 {
		t.Errorf("%d bytes are unread, want 5", n)
	}
	encode()
	forgotten := &call{Context: t.Context(), account: all.others}
	if err := forgotten.count(megabyte); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if all.bytes() <= 5 {
			break
		}
		runtime.GC()
		runtime.Gosched() // lets the cleanups started by the garbage collector run
	}
	d := all.others.reserve(7)
	d.release()
	d.release()
	if n := all.bytes(); n != 5 {
		t.Errorf("%d bytes are unread, want 5", n)
	}
}

// TestManyMiddlingAnswers checks that the memory for many medium-sized responses is bounded too.
func TestManyMiddlingAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &megabytes{size: 60_000}
		client, all := s.serve(t)
		client.ask("Call", 2000)
		if n := s.codec.encoded.Load(); n < maxUnread-largeAnswer || n > 2*maxUnread {
			t.Errorf("%d bytes were encoded, of which %d are counted", n, all.bytes())
		}
	})
}
