package listen

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	pb "leasehold.dev/api/leasehold/v1"
)

// encodingStream encodes messages and then drops them.
type encodingStream struct {
	grpc.ServerStream
	codec encoding.CodecV2
}

func (s encodingStream) SendMsg(m any) error {
	_, err := s.codec.Marshal(m)
	return err
}

// send sends a message of the given size on a stream of a connection.
func (a *account) send(t *testing.T, bytes int) error {
	t.Helper()
	return a.stream(t).SendMsg(make(sized, bytes))
}

// stream returns a new stream of a connection.
func (a *account) stream(t *testing.T) *accountedStream {
	s := &accountedStream{
		ServerStream: encodingStream{codec: a.all.Codec(rawCodec{})},
		call:         call{Context: t.Context(), account: a},
	}
	s.ctx = context.WithValue(t.Context(), streamKey{}, s)
	return s
}

// TestKeepAlivesDoNotWait checks that small messages on streams never wait, no matter how full the
// account is. Large messages do.
func TestKeepAlivesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		full := all.others.reserve(maxUnread)
		if err := all.others.send(t, largeAnswer-1); err != nil {
			t.Error(err)
		}
		sent := make(chan error, 1)
		go func() { sent <- all.others.send(t, largeAnswer) }()
		time.Sleep(time.Hour)
		select {
		case err := <-sent:
			t.Errorf("a large message was sent: %v", err)
		default:
		}
		full.release()
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// TestSmallMessagesPass checks that small messages on a stream overtake a large one that is
// waiting.
func TestSmallMessagesPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		a := all.others
		full := a.reserve(maxUnread)
		s := a.stream(t)
		announce := func(bytes int) <-chan struct{} { return Ready(s.Context(), bytes) }
		if announce(largeAnswer) == nil {
			t.Fatal("a large message need not wait")
		}
		for range 3 {
			if announce(largeAnswer-1) != nil {
				t.Error("a small message waits")
			}
			if err := s.SendMsg(make(sized, largeAnswer-1)); err != nil {
				t.Error(err)
			}
		}
		ready := announce(largeAnswer)
		full.release()
		<-ready
		if announce(largeAnswer) != nil {
			t.Error("it has room, and waits")
		}
		if err := s.SendMsg(make(sized, largeAnswer)); err != nil {
			t.Error(err)
		}
		if len(a.all.waiting) != 0 || s.call.requested != nil {
			t.Error("it still waits")
		}
	})
}

// TestStreamEndsWhileItWaits checks that if a stream ends, its large message leaves nothing behind,
// whether or not the message had been granted room.
func TestStreamEndsWhileItWaits(t *testing.T) {
	for _, granted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			all := newAnswers()
			full := all.others.reserve(maxUnread)
			s, leave, err := all.Stream(contextStream{ctx: t.Context()}, &grpc.StreamServerInfo{})
			if err != nil || Ready(s.Context(), megabyte) == nil {
				t.Fatalf("it need not wait, or cannot: %v", err)
			}
			if granted {
				full.release()
			}
			err = leave(nil)
			full.release()
			if n := all.bytes(); err != nil || n != 0 || len(all.waiting) > 0 {
				t.Errorf("%d bytes are unread, %d wait, %v", n, len(all.waiting), err)
			}
		})
	}
}

type contextStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s contextStream) Context() context.Context { return s.ctx }

// TestSmallMessagesAreCounted checks that unread small messages of a stream, except the last few,
// are counted until they are read.
func TestSmallMessagesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &megabytes{size: 100, messages: 300}
		client, all := s.serve(t)
		const streams = 10
		client.ask("Stream", streams)
		encoded := s.codec.encoded.Load()
		if encoded != streams*100*300 {
			t.Fatalf("%d bytes were encoded", encoded)
		}
		if n := all.bytes(); n > encoded || n < encoded-streams*smallAnswer {
			t.Errorf("%d bytes are counted, %d were encoded", n, encoded)
		}
		if err := client.framer.WriteWindowUpdate(0, 1<<30); err != nil {
			t.Fatal(err)
		}
		client.window(megabyte)
		synctest.Wait()
		if n := all.bytes(); n != 0 {
			t.Errorf("%d bytes are unread when all were read", n)
		}
	})
}

// TestUnreadAnswerMemory checks that the memory counted for an unread response is
// close to its actual use, whichever buffer it was encoded into. For some sizes, gRPC's codec uses
// buffers of 1 MiB.
func TestUnreadAnswerMemory(t *testing.T) {
	all := newAnswers()
	codec := all.Codec(encoding.GetCodecV2(proto.Name))
	for _, size := range []int{3 << 10, 20 << 10, 33 << 10, 200 << 10, 700 << 10, 2 << 20} {
		m := &call{Context: t.Context(), account: all.others}
		m.message = wrapperspb.Bytes(make([]byte, size))
		data, err := codec.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		occupied := 0
		for _, part := range data {
			occupied += cap(part.ReadOnlyData())
		}
		if counted := int(all.bytes()); counted < size || occupied > 2*counted {
			t.Errorf("an answer of %d bytes occupies %d, and %d are counted", size, occupied, counted)
		}
		data.Free()
		if left := all.bytes(); left != 0 {
			t.Errorf("%d bytes are counted after an answer of %d was written", left, size)
		}
	}
}

// TestGuessesGrowWithKeys checks that only a few responses with many keys are built at a time,
// because each takes much more memory than the usual estimate. Each connection requests room for
// one response before any of them is built.
func TestGuessesGrowWithKeys(t *testing.T) {
	for _, c := range []struct {
		keys        int64
		least, most int
	}{{10, 32, 64}, {50_000, 8, 16}, {1_000_000, 1, 2}} {
		all, held := newAnswers(), 0
		for range 200 {
			select {
			case <-all.account(nil).guess(c.keys, true).decided:
				held++
			default:
			}
		}
		if held < c.least || held > c.most {
			t.Errorf("%d answers of %d keys are made at once, want %d to %d", held, c.keys, c.least, c.most)
		}
	}
}

// TestLargeMessagesReserveFirst checks that a message with many keys waits for room before
// it is built. A large message keeps its room until it is written, and a small one gives it back.
func TestLargeMessagesReserveFirst(t *testing.T) {
	for name, size := range map[string]int{"small": 100, "large": 3 * megabyte} {
		synctest.Test(t, func(t *testing.T) {
			all := newAnswers()
			full := all.others.reserve(maxUnread)
			s := all.others.stream(t)
			ready := Making(s.Context(), 50_000)
			if ready == nil {
				t.Fatal("it does not wait")
			}
			if Ready(s.Context(), 100) != nil {
				t.Error("a small message waits behind it")
			}
			if err := s.SendMsg(make(sized, 100)); err != nil {
				t.Error(err)
			}
			full.release()
			<-ready
			if n := all.bytes(); n < 50_000*keySize {
				t.Errorf("%s: %d bytes are counted before it is made", name, n)
			}
			if Ready(s.Context(), size) != nil {
				t.Errorf("%s: it waits again", name)
			}
			if err := s.SendMsg(make(sized, size)); err != nil {
				t.Error(err)
			}
			Made(s.Context())
			if len(all.waiting) > 0 || s.call.making != nil || all.bytes() > int64(size)+smallAnswer {
				t.Errorf("%s: %d bytes are counted when it was sent", name, all.bytes())
			}
			if err := all.others.send(t, megabyte); err != nil {
				t.Error(err)
			}
		})
	}
}

// opens opens n streams of a method on a connection and keeps them open. If method is empty, it
// makes calls instead. It returns how many were accepted, a function that ends one of them, and why
// the last one was rejected.
func opens(
	ctx context.Context, all *Answers, n int, method string,
) (in int, end func(), err error) {
	ends := make(chan struct{})
	end = func() { ends <- struct{}{} }
	for i := range n {
		info := &grpc.StreamServerInfo{FullMethod: method}
		if method != "" {
			_, leave, err := all.Stream(contextStream{ctx: ctx}, info)
			if err != nil {
				return i, end, err
			}
			go func() { <-ends; _ = leave(nil) }()
			continue
		}
		called, refused := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := all.Unary(nil)(ctx, nil, nil, func(context.Context, any) (any, error) {
				close(called)
				<-ends
				return nil, io.EOF
			})
			refused <- err
		}()
		select {
		case <-called:
		case err := <-refused:
			return i, end, err
		}
	}
	return n, end, nil
}

// TestOpenStreamsAreBounded checks that streams of authenticated callers are bounded too. A
// connection cannot have more streams than remain free for other connections. The limit for calls
// is twice as high, so streams alone do not prevent calls on other connections.
func TestOpenStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		all.mostOpen = 10
		conn := func() context.Context {
			return context.WithValue(t.Context(), accountKey{}, all.account(nil))
		}
		first := conn()
		var ends []func()
		for i, want := range []int{5, 3, 1, 1, 0} {
			ctx := conn()
			if i == 0 {
				ctx = first
			}
			n, end, err := opens(ctx, all, 10, "/m/Stream")
			if n != want || status.Code(err) != codes.ResourceExhausted {
				t.Errorf("connection %d has %d streams, want %d: %v", i, n, want, err)
			}
			for range n {
				ends = append(ends, end)
			}
		}
		for _, way := range []struct {
			what, method string
			ctx          context.Context
			want         int
		}{
			{"streams that rest, from a relay", pb.StreamService_Open_FullMethodName, conn(), 100},
			{"other streams from a relay", "/m/Stream", conn(), 0},
			{"calls", "", conn(), 5},
			{"calls of a connection with streams", "", first, 0},
		} {
			n, end, _ := opens(way.ctx, all, 100, way.method)
			if n != way.want {
				t.Errorf("%d %s were let in, want %d", n, way.what, way.want)
			}
			for range n {
				ends = append(ends, end)
			}
		}
		for _, end := range ends {
			end()
		}
		synctest.Wait()
		if n := all.open.Load(); n != 0 {
			t.Errorf("%d are counted after all have ended", n)
		}
		if n, end, err := opens(first, all, 5, "/m/Stream"); err != nil {
			t.Errorf("%d streams, and then %v", n, err)
		} else {
			for range n {
				end()
			}
		}
	})
}

// TestBoundOpenFollowsMemory checks that the limit on open streams is derived from the memory size,
// and that strangers get less than the whole limit.
func TestBoundOpenFollowsMemory(t *testing.T) {
	for memory, want := range map[uint64]int64{1 << 20: 8192, 3 << 30: 19_660, 64 << 30: 419_430} {
		if n := newAnswers().BoundOpen(memory).mostOpen; n != want {
			t.Errorf("%d streams in %d bytes, want %d", n, memory, want)
		}
	}
}
