package listen

import (
	"bytes"
	"context"
	"errors"
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
)

const megabyte = 1 << 20

// megabytes is a service whose answers and messages have a megabyte each.
type megabytes struct {
	evaluated atomic.Int64
	room      bool // calls ask for room
}

// rawCodec takes bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

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
		return make([]byte, megabyte), nil
	})
}

func (s *megabytes) stream(_ any, stream grpc.ServerStream) error {
	for {
		s.evaluated.Add(1)
		if err := stream.SendMsg(make([]byte, megabyte)); err != nil {
			return err
		}
	}
}

// serve returns a raw connection to the service, and its answers. Everything ends with the test.
func (s *megabytes) serve(t *testing.T) (*answersClient, *Answers) {
	all := NewAnswers()
	gs := grpc.NewServer(grpc.Creds(Credentials(nil, all)), grpc.UnaryInterceptor(all.Unary),
		grpc.StreamInterceptor(all.Stream), grpc.ForceServerCodecV2(all.Codec(rawCodec{})))
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
	conn := l.dial()
	t.Cleanup(func() {
		_ = conn.Close()
		gs.Stop()
		<-served
	})
	return newAnswersClient(t, conn), all
}

// answersClient speaks HTTP/2 by hand, since a library would read.
type answersClient struct {
	t      *testing.T
	close  func() error
	framer *http2.Framer
	data   atomic.Int64 // bytes of answers that were read
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
		} {
			_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		id := uint32(2*i + 1)
		err := c.framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: b.Bytes(), EndHeaders: true,
		})
		if err == nil {
			err = c.framer.WriteData(id, true, make([]byte, 5))
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// Goal: one connection that reads nothing makes the server hold a bounded number of bytes, calls
// wait only for a while, and all is forgotten with the connection. Method: 150 answers of a
// megabyte.
func TestUnreadAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		method string
		room   bool
		most   int64 // calls that are evaluated
		bytes  int64 // at most, that are unread
	}{
		{"room", "Call", true, maxUnread/megabyte + maxTurns, maxUnread + maxTurns*megabyte},
		// Only those that look for room at the same time exceed the bound.
		{"no room asked for", "Call", false, 150, 2 * maxUnread},
		{"streams", "Stream", false, 300, 2 * maxUnread},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &megabytes{room: c.room}
				client, all := s.serve(t)
				client.ask(c.method, 150)
				if n := s.evaluated.Load(); n < maxUnread/megabyte || n > c.most {
					t.Errorf("%d calls were evaluated", n)
				}
				unread := all.unread.Load()
				if unread < maxUnread || unread > c.bytes {
					t.Errorf("%d bytes are unread", unread)
				}
				time.Sleep(readPatience)
				synctest.Wait()
				if n := len(all.waiting); n != 0 {
					t.Errorf("calls of %d connections still wait", n)
				}
				if unread := all.unread.Load(); unread > c.bytes {
					t.Errorf("%d bytes are unread in the end", unread)
				}
				client.close()
				synctest.Wait()
				if unread, n := all.unread.Load(), len(all.accounts); unread != 0 || n != 0 {
					t.Errorf("%d bytes are unread, %d connections open", unread, n)
				}
			})
		})
	}
}

// Goal: small messages of streams wait for nobody, however full the account is. Method: a
// message below and one above the limit are encoded while the account is full.
func TestKeepAlivesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewAnswers()
		all.others.add(maxUnreadAll, 0)
		codec := all.Codec(rawCodec{})
		encode := func(bytes int) error {
			c := &call{Context: t.Context(), account: all.others, stream: true}
			c.message = make([]byte, bytes)
			_, err := codec.Marshal(c)
			return err
		}
		if err := encode(largeAnswer - 1); err != nil {
			t.Error(err)
		}
		if err := encode(largeAnswer); !errors.Is(err, errNoRoom) {
			t.Errorf("a large message was encoded: %v", err)
		}
	})
}

// Goal: what gRPC has written or given up is given back once, and so is what it drops without a
// word. Method: answers are encoded; one is freed, and collected later, and one is only collected.
func TestDebtIsPaidOnce(t *testing.T) {
	all := NewAnswers()
	all.others.add(5, 0)
	encode := func() mem.BufferSlice {
		c := &call{Context: t.Context(), account: all.others, message: make([]byte, megabyte)}
		data, err := all.Codec(rawCodec{}).Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	encode().Free()
	if n := all.unread.Load(); n != 5 {
		t.Errorf("%d bytes are unread, want 5", n)
	}
	encode()
	for range 1000 {
		if all.unread.Load() <= 5 {
			break
		}
		runtime.GC()
		runtime.Gosched() // to what the collector started
	}
	d := &debt{account: all.others, bytes: 7}
	all.others.add(7, 0)
	d.pay()
	d.pay()
	if n := all.unread.Load(); n != 5 {
		t.Errorf("%d bytes are unread, want 5", n)
	}
}

// Goal: a client that reads slowly gets every answer, and the account is empty at the end.
// Method: the window opens a little now and then, while 150 answers of a megabyte wait.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &megabytes{room: true}
		client, all := s.serve(t)
		client.ask("Call", 100)
		if err := client.framer.WriteWindowUpdate(0, 1<<30); err != nil {
			t.Fatal(err)
		}
		for window := uint32(0); client.data.Load() < 100*megabyte; window += 64 << 10 {
			if window > 2*megabyte {
				t.Fatalf("%d bytes were answered", client.data.Load())
			}
			client.window(window)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if unread := all.unread.Load(); unread != 0 {
			t.Errorf("%d bytes are unread", unread)
		}
	})
}

// A call whose client gives up while it waits leaves its place to the next.
func TestGivenUpInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewAnswers()
		a := all.account(nil, maxUnread)
		a.turns = 1
		if err := a.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error), make(chan error)
		go func() { first <- a.enter(ctx) }()
		synctest.Wait()
		go func() { second <- a.enter(t.Context()) }()
		synctest.Wait()
		cancel()
		if err := <-first; err == nil {
			t.Error("a call that was given up entered")
		}
		a.add(0, 1)
		if err := <-second; err != nil {
			t.Error(err)
		}
		if len(all.waiting) != 0 || a.turns != 0 || all.unread.Load() != inTheMaking {
			t.Errorf("%d wait, %d turns are free, %d bytes are unread", len(all.waiting), a.turns,
				all.unread.Load())
		}
	})
}
