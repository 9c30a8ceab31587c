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

// bytes returns how many bytes all connections leave unread.
func (all *Answers) bytes() int64 {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.unread
}

func newAnswers() *Answers { return NewAnswers(slog.New(slog.DiscardHandler)) }

// megabytes is a service whose answers and messages have a megabyte each, or size bytes.
type megabytes struct {
	evaluated atomic.Int64
	size      int
	messages  int  // of a stream; 0: no end
	room      bool // calls ask for room
	codec     rawCodec
}

func (s *megabytes) answer() sized { return make(sized, cmp.Or(s.size, megabyte)) }

// sized is an answer that knows its size, as all of ours.
type sized []byte

func (s sized) Size() int { return len(s) }

// rawCodec takes bytes as they are.
type rawCodec struct {
	pause         func() // unless nil: what it takes to evaluate an answer, and to encode it
	encoded       *atomic.Int64
	current, most *atomic.Int64 // messages that are being encoded
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

// serve returns a raw connection to the service, and its answers. Everything ends with the test.
func (s *megabytes) serve(t *testing.T) (*answersClient, *Answers) {
	l, all := s.listen(t)
	conn := l.dial()
	t.Cleanup(func() { _ = conn.Close() })
	return newAnswersClient(t, conn), all
}

// listen serves until the test ends.
func (s *megabytes) listen(t *testing.T) (*pipes, *Answers) {
	all := newAnswers()
	s.codec.encoded = new(atomic.Int64)
	s.codec.current, s.codec.most = new(atomic.Int64), new(atomic.Int64)
	gs := grpc.NewServer(grpc.Creds(Credentials(nil, all)), grpc.UnaryInterceptor(all.Unary),
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

// answersClient speaks HTTP/2 by hand, since a library would read.
type answersClient struct {
	t      *testing.T
	close  func() error
	framer *http2.Framer
	data   atomic.Int64 // bytes of answers that were read

	timeout string // of calls, unless it is empty
	silent  bool   // calls have no message
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

// window lets the server send so many bytes on each stream.
func (c *answersClient) window(bytes uint32) {
	c.t.Helper()
	err := c.framer.WriteSettings(
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: bytes})
	if err != nil {
		c.t.Fatal(err)
	}
}

// ask makes so many calls of a method, and does not wait for answers.
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

// A connection that reads nothing makes the server hold a bounded number of bytes, even if its
// calls ask for room at the same time. They wait only for a while, and everything is released with
// the connection.
func TestUnreadResponses(t *testing.T) {
	for _, c := range []struct {
		name   string
		method string
		s      *megabytes
		most   int64 // calls that are evaluated
		bytes  int64 // at most, that are encoded
	}{
		{
			"room", "Call", &megabytes{room: true},
			maxUnread/megabyte + 1, maxUnread + megabyte,
		},
		{
			"no room asked for", "Call", &megabytes{},
			150, maxUnread + megabyte,
		},
		// Only those that look for room at the same time exceed the bound.
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
				time.Sleep((patientBeats + 1) * beat)
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

// A client that reads gets all its responses at once, although together they exceed what may stay
// unread.
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

// What gRPC has written, given up or silently dropped is released exactly once.
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
		runtime.Gosched() // to what the collector started
	}
	d := all.others.reserve(7)
	d.release()
	d.release()
	if n := all.bytes(); n != 5 {
		t.Errorf("%d bytes are unread, want 5", n)
	}
}

// Many responses of middling size are bounded, too.
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
