package relayed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/listen"
)

// wire is the member's end of an in-memory relay stream. Sending a message blocks until the
// previous one is read.
type wire struct {
	grpc.ServerStream
	ctx  context.Context
	up   chan *pb.RelayRequest
	down chan *pb.RelayResponse
	stop chan struct{}    // closed when the member stops
	got  []*pb.RelayFrame // unread frames of the last message
}

// Context implements grpc.ServerStream.
func (w *wire) Context() context.Context { return w.ctx }

// Send implements pb.RelayService_RelayServer. Like gRPC, it rejects messages that cannot be
// encoded.
func (w *wire) Send(m *pb.RelayResponse) error {
	if _, err := proto.Marshal(m); err != nil {
		return err
	}
	select {
	case w.down <- m:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// Recv implements pb.RelayService_RelayServer.
func (w *wire) Recv() (*pb.RelayRequest, error) {
	select {
	case m := <-w.up:
		return m, nil
	case <-w.ctx.Done():
		return nil, io.EOF
	}
}

// next returns the next frame of a channel, or nil if the stream has ended. It drops other
// channels' frames.
func (w *wire) next(channel uint64) *pb.RelayFrame {
	for {
		for len(w.got) > 0 {
			f := w.got[0]
			w.got = w.got[1:]
			if f.Channel == channel {
				return f
			}
		}
		m, ok := <-w.down
		if !ok {
			return nil
		}
		w.got = m.Frames
	}
}

// open opens a channel.
func (w *wire) open(id uint64, call *pb.RelayCall) {
	call.Method = "/s/m"
	w.up <- &pb.RelayRequest{Frames: []*pb.RelayFrame{{Channel: id, Call: call}}}
}

// relayedTo runs f in virtual time with a relay connected to a member that serves calls with serve.
// The stream is already open.
func relayedTo(
	t *testing.T, o Options, serve func(grpc.ServerStream) error, f func(*testing.T, *wire),
) {
	t.Helper()
	methodsTo(t, o, grpc.ServiceDesc{
		Streams: []grpc.StreamDesc{{
			StreamName: "m", ClientStreams: true, ServerStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error { return serve(s) },
		}},
	}, f)
}

// methodsTo is like relayedTo, but for any methods.
func methodsTo(t *testing.T, o Options, d grpc.ServiceDesc, f func(*testing.T, *wire)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		calls := NewCalls(grpc.NewServer())
		d.ServiceName, d.HandlerType = "s", (*any)(nil)
		calls.RegisterService(&d, nil)
		if o.MaxMessage = 1 << 20; o.Codec == nil {
			o.Codec = encoding.GetCodecV2("proto")
		}
		o.Impersonate = func(_, call context.Context) (context.Context, error) { return call, nil }
		if o.MayRelay == nil {
			o.MayRelay = func(context.Context) error { return nil }
		}
		if o.AccessChanged == nil {
			o.AccessChanged = func() <-chan struct{} { return nil }
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := &wire{
			ctx: ctx, up: make(chan *pb.RelayRequest), down: make(chan *pb.RelayResponse),
			stop: make(chan struct{}),
		}
		o.Stop = w.stop
		ended := make(chan error, 1)
		go func() {
			ended <- (&service{calls: calls, o: o}).Relay(w)
			close(w.down)
		}()
		<-w.down
		f(t, w)
		cancel()
		<-ended
	})
}

// TestStrangeError checks that a call's status can always be encoded, even if the error text is
// invalid. Otherwise, the stream of all clients would end.
func TestStrangeError(t *testing.T) {
	serve := func(grpc.ServerStream) error { return status.Error(codes.NotFound, "no key \xff") }
	relayedTo(t, Options{}, serve, func(t *testing.T, w *wire) {
		for id := range uint64(2) {
			w.open(id+1, &pb.RelayCall{})
			e := w.next(id + 1).GetEnd()
			if codes.Code(e.GetCode()) != codes.NotFound || !strings.HasPrefix(e.GetMessage(), "no key ") {
				t.Fatalf("the call ends with %v", e)
			}
		}
	})
}

var errTaken = errors.New("the role was taken")

// TestRoleTakenUnread checks that a relay whose role is removed carries no more calls, even while
// its stream is blocked because the relay does not read. There are calls in flight and another
// arrives.
func TestRoleTakenUnread(t *testing.T) {
	var changed chan struct{}
	var may error
	o := Options{
		AccessChanged: func() <-chan struct{} {
			changed = make(chan struct{})
			return changed
		},
		MayRelay: func(context.Context) error { return may },
	}
	began := 0
	over := make(chan error, 1)
	serve := func(s grpc.ServerStream) error {
		began++
		<-s.Context().Done()
		over <- s.Context().Err()
		return nil
	}
	relayedTo(t, o, serve, func(t *testing.T, w *wire) {
		w.open(1, &pb.RelayCall{})
		w.up <- &pb.RelayRequest{Frames: []*pb.RelayFrame{{}}} // the relay does not read the answer
		synctest.Wait()
		may = errTaken
		close(changed)
		synctest.Wait()
		select {
		case <-over:
		default:
			t.Fatal("a call of a relay that may not be one goes on")
		}
		select {
		case w.up <- &pb.RelayRequest{Frames: []*pb.RelayFrame{
			{Channel: 2, Call: &pb.RelayCall{Method: "/s/m"}},
		}}:
		default: // the member no longer receives
		}
		synctest.Wait()
		if began != 1 {
			t.Error("a relay that may not be one makes calls")
		}
	})
}

// TestAnswer checks that a call's response is complete: its header, even without a message, its
// trailer, and its error details.
func TestAnswer(t *testing.T) {
	failed, err := status.New(codes.NotFound, "why").WithDetails(&pb.RelayHeader{})
	if err != nil {
		t.Fatal(err)
	}
	serve := func(s grpc.ServerStream) error {
		s.SetTrailer(metadata.Pairs("t", "2"))
		if err := s.SetHeader(metadata.Pairs("h", "1")); err != nil {
			return err
		}
		return failed.Err()
	}
	relayedTo(t, Options{}, serve, func(t *testing.T, w *wire) {
		w.open(1, &pb.RelayCall{})
		if h := w.next(1).GetHeader().GetHeaders(); len(h) != 1 || h[0].Name+string(h[0].Value) != "h1" {
			t.Errorf("the header is %v", h)
		}
		e := w.next(1).GetEnd()
		details := new(statuspb.Status)
		if err := proto.Unmarshal(e.GetDetails(), details); err != nil || len(details.Details) != 1 {
			t.Errorf("the details are %v, %v", details, err)
		}
		if x := e.GetTrailers(); len(x) != 1 || x[0].Name+string(x[0].Value) != "t2" {
			t.Errorf("the trailer is %v", x)
		}
	})
}

// TestCallsEnd checks that a call ends at its deadline, and when its client cancels it.
func TestCallsEnd(t *testing.T) {
	ended := 0
	serve := func(s grpc.ServerStream) error {
		<-s.Context().Done()
		ended++
		return status.FromContextError(s.Context().Err()).Err()
	}
	relayedTo(t, Options{}, serve, func(t *testing.T, w *wire) {
		w.open(1, &pb.RelayCall{TimeoutMs: 1000})
		if e := w.next(1).GetEnd(); codes.Code(e.GetCode()) != codes.DeadlineExceeded {
			t.Errorf("a call whose time is over ends with %v", e)
		}
		w.open(2, &pb.RelayCall{})
		w.up <- &pb.RelayRequest{Frames: []*pb.RelayFrame{{Channel: 2, End: &pb.RelayEnd{}}}}
		synctest.Wait()
		if ended != 2 {
			t.Error("a call that is given up goes on")
		}
		w.open(3, &pb.RelayCall{Certificate: []byte("x")})
		if e := w.next(3).GetEnd(); codes.Code(e.GetCode()) != codes.InvalidArgument {
			t.Errorf("a call with a certificate that is none ends with %v", e)
		}
	})
}

// TestStop checks that a member that stops answers the calls in flight, accepts no new ones, and
// then ends the stream.
func TestStop(t *testing.T) {
	var answer chan struct{}
	serve := func(grpc.ServerStream) error {
		<-answer
		return nil
	}
	relayedTo(t, Options{}, serve, func(t *testing.T, w *wire) {
		answer = make(chan struct{})
		w.open(1, &pb.RelayCall{})
		synctest.Wait()
		close(w.stop)
		synctest.Wait()
		w.open(2, &pb.RelayCall{})
		if e := w.next(2).GetEnd(); codes.Code(e.GetCode()) != codes.Unavailable {
			t.Errorf("a call of a member that stops ends with %v", e)
		}
		close(answer)
		if e := w.next(1).GetEnd(); e == nil || e.Code != 0 {
			t.Errorf("a call that had begun ends with %v", e)
		}
		if f := w.next(3); f != nil {
			t.Errorf("the stream goes on: %v", f)
		}
	})
}

// TestLargeUnread checks that large responses left unread by one client of a relay take bounded
// memory, are not built once the limit is reached, and do not use up other clients' memory.
func TestLargeUnread(t *testing.T) {
	answers := listen.NewAnswers(slog.New(slog.DiscardHandler))
	o := Options{
		Codec:   answers.Codec(encoding.GetCodecV2("proto")),
		Unary:   []grpc.UnaryServerInterceptor{answers.Unary(nil)},
		Account: answers.ConnContext,
	}
	const large, many, others = 1 << 20, 1000, 200
	var made atomic.Int64
	answer := func(ctx context.Context, _ any) (any, error) {
		if err := listen.Room(ctx); err != nil {
			return nil, err
		}
		made.Add(1)
		return &pb.PutRequest{Value: make([]byte, large)}, nil
	}
	d := grpc.ServiceDesc{Methods: []grpc.MethodDesc{{
		MethodName: "u",
		Handler: func(
			_ any, ctx context.Context, _ func(any) error, around grpc.UnaryServerInterceptor,
		) (any, error) {
			return around(ctx, nil, nil, answer)
		},
	}}}
	methodsTo(t, o, d, func(t *testing.T, w *wire) {
		go func() {
			for range w.down { // no channel is read, so no window is returned
			}
		}()
		last := uint64(0)
		call := func(address string) {
			last++
			w.up <- &pb.RelayRequest{Frames: []*pb.RelayFrame{{
				Channel: last, Call: &pb.RelayCall{Method: "/s/u", Address: address},
			}}}
		}
		for range many {
			call("10.0.0.1:1")
		}
		synctest.Wait()
		if n := made.Swap(0); n == 0 || n > 64 {
			t.Errorf("%d answers of one client are made", n)
		}
		for i := range others {
			call(fmt.Sprint("10.0.0.2:", i+1))
		}
		<-time.After(time.Minute)
		if n := made.Load(); n < others {
			t.Errorf("%d answers of %d other clients are made", n, others)
		}
	})
}
