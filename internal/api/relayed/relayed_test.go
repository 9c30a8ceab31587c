package relayed

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// wire is the stream of a relay, in memory, as the member has it. A message holds up the next one
// until it is read.
type wire struct {
	grpc.ServerStream
	ctx  context.Context
	up   chan *pb.RelayRequest
	down chan *pb.RelayResponse
}

// Context implements grpc.ServerStream.
func (w *wire) Context() context.Context { return w.ctx }

// Send implements pb.RelayService_RelayServer. As gRPC does, it refuses what cannot be encoded.
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

// next returns the next frame of a channel, nil if the stream has ended.
func (w *wire) next(channel uint64) *pb.RelayFrame {
	for m := range w.down {
		for _, f := range m.Frames {
			if f.Channel == channel {
				return f
			}
		}
	}
	return nil
}

// open opens a channel.
func (w *wire) open(id uint64, method string) {
	w.up <- &pb.RelayRequest{Frames: []*pb.RelayFrame{{
		Channel: id, Call: &pb.RelayCall{Method: method},
	}}}
}

// relayedTo runs f with a relay of a member whose calls are served by a function, in virtual time.
// The stream has begun.
func relayedTo(
	t *testing.T, o Options, serve func(grpc.ServerStream) error, f func(*testing.T, *wire),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		calls := NewCalls(grpc.NewServer())
		calls.RegisterService(&grpc.ServiceDesc{
			ServiceName: "s", HandlerType: (*any)(nil),
			Streams: []grpc.StreamDesc{{
				StreamName: "m", ClientStreams: true, ServerStreams: true,
				Handler: func(_ any, s grpc.ServerStream) error { return serve(s) },
			}},
		}, nil)
		o.Codec, o.MaxMessage = encoding.GetCodecV2("proto"), 1<<20
		o.Speaks = func(context.Context, context.Context) error { return nil }
		if o.May == nil {
			o.May = func(context.Context) error { return nil }
		}
		if o.AccessChanged == nil {
			o.AccessChanged = func() <-chan struct{} { return nil }
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := &wire{ctx: ctx, up: make(chan *pb.RelayRequest), down: make(chan *pb.RelayResponse)}
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

// Goal: how a call has ended can always be told, or the stream of all clients would end. Method:
// calls whose errors have texts that the protocol has no room for.
func TestStrangeError(t *testing.T) {
	serve := func(grpc.ServerStream) error { return status.Error(codes.NotFound, "no key \xff") }
	relayedTo(t, Options{}, serve, func(t *testing.T, w *wire) {
		for id := range uint64(2) {
			w.open(id+1, "/s/m")
			e := w.next(id + 1).GetEnd()
			if codes.Code(e.GetCode()) != codes.NotFound || !strings.HasPrefix(e.GetMessage(), "no key ") {
				t.Fatalf("the call ends with %v", e)
			}
		}
	})
}

var errTaken = errors.New("the role was taken")

// Goal: a relay whose role is taken carries nothing more, even if it reads nothing. Method: the
// stream is held up by what the relay does not read; calls of it are under way, and another comes.
func TestRoleTakenUnread(t *testing.T) {
	var changed chan struct{}
	var may error
	o := Options{
		AccessChanged: func() <-chan struct{} {
			changed = make(chan struct{})
			return changed
		},
		May: func(context.Context) error { return may },
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
		w.open(1, "/s/m")
		w.up <- &pb.RelayRequest{Frames: []*pb.RelayFrame{{}}} // the answer is not read
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
		default: // nobody receives any more
		}
		synctest.Wait()
		if began != 1 {
			t.Error("a relay that may not be one makes calls")
		}
	})
}
