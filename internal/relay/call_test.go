package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/channel"
	"leasehold.dev/internal/listen"
)

// pipe is one end of an in-memory stream.
type pipe struct {
	out chan<- []*pb.RelayFrame
	in  <-chan []*pb.RelayFrame
	end <-chan struct{}
}

// Send implements channel.Stream.
func (p pipe) Send(m []*pb.RelayFrame) error {
	select {
	case p.out <- m:
		return nil
	case <-p.end:
		return io.EOF
	}
}

// Recv implements channel.Stream.
func (p pipe) Recv() ([]*pb.RelayFrame, error) {
	select {
	case m := <-p.in:
		return m, nil
	case <-p.end:
		return nil, io.EOF
	}
}

// asked is a client's call.
type asked struct {
	ctx  context.Context
	up   chan []byte // closed when the client half-closes
	down chan []byte
	over chan error // the status of the call
	// header and trailer are set when the call ends.
	header, trailer metadata.MD
}

// Context implements grpc.ServerStream.
func (a *asked) Context() context.Context { return a.ctx }

// SetHeader implements grpc.ServerStream.
func (a *asked) SetHeader(md metadata.MD) error {
	a.header = metadata.Join(a.header, md)
	return nil
}

// SendHeader implements grpc.ServerStream.
func (a *asked) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (a *asked) SetTrailer(md metadata.MD) { a.trailer = md }

// Method implements grpc.ServerTransportStream.
func (a *asked) Method() string { return "/s/m" }

// RecvMsg implements grpc.ServerStream.
func (a *asked) RecvMsg(m any) error {
	select {
	case b, ok := <-a.up:
		if !ok {
			return io.EOF
		}
		m.(*message).bytes = b
		return nil
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
}

// SendMsg implements grpc.ServerStream.
func (a *asked) SendMsg(m any) error {
	select {
	case a.down <- m.(*message).bytes:
		return nil
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
}

// transport is the transport stream of a call. It returns the call's method.
type transport struct {
	grpc.ServerTransportStream
	*asked
}

// Method implements grpc.ServerTransportStream.
func (t transport) Method() string { return t.asked.Method() }

// SetHeader implements grpc.ServerTransportStream.
func (t transport) SetHeader(md metadata.MD) error { return t.asked.SetHeader(md) }

// SendHeader implements grpc.ServerTransportStream.
func (t transport) SendHeader(md metadata.MD) error { return t.asked.SendHeader(md) }

// SetTrailer implements grpc.ServerTransportStream.
func (t transport) SetTrailer(metadata.MD) error { return nil }

func (r *Relay) ask(ctx context.Context) *asked {
	a := &asked{up: make(chan []byte, 1), down: make(chan []byte, 1), over: make(chan error, 1)}
	ctx, cancel := context.WithCancel(ctx)
	a.ctx = grpc.NewContextWithServerTransportStream(ctx, transport{asked: a})
	go func() {
		err := r.carry(nil, a)
		cancel()
		a.over <- err
	}()
	return a
}

// carried runs f, in virtual time, with a relay whose member handles calls with serve.
func carried(t *testing.T, serve func(*channel.Channel), f func(*testing.T, *Relay)) {
	t.Helper()
	accept := func(c *channel.Channel, _ *pb.RelayCall) func() {
		go serve(c)
		return nil
	}
	carriedTo(t, accept, f)
}

// carriedTo is like carried, for a member that accepts calls with accept.
func carriedTo(t *testing.T, accept channel.Accept, f func(*testing.T, *Relay)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		up, down := make(chan []*pb.RelayFrame, 1), make(chan []*pb.RelayFrame, 1)
		end := make(chan struct{})
		member := channel.New(pipe{down, up, end}, 1<<20, accept)
		w := &upstream{Link: channel.New(pipe{up, down, end}, 1<<20, nil), keeping: newKeeping()}
		w.keeping.over(w.Link)
		for _, l := range []*channel.Link{w.Link, member} {
			go func() { _ = l.Run(t.Context()) }() // ends with the stream
		}
		r := &Relay{
			count: newMetrics(), large: semaphore.NewWeighted(1 << 20),
			answers: listen.NewAnswers(slog.New(slog.DiscardHandler)),
		}
		r.members = newMembers(nil, slog.New(slog.DiscardHandler), r.count)
		r.members.set(w)
		r.draining, r.drain = context.WithCancel(t.Context())
		r.drained, r.endAll = context.WithCancel(t.Context())
		f(t, r)
		close(end)
		synctest.Wait()
	})
}

// answer handles one request, like a unary method of a member.
func answer(c *channel.Channel) {
	b, err := c.Recv(context.Background())
	if err != nil {
		c.End(&pb.RelayEnd{Code: 2, Message: err.Error()})
		return
	}
	if c.Send(context.Background(), b) == nil {
		c.End(&pb.RelayEnd{})
	}
}

// TestStopsAfterAnswers checks that when the relay stops, calls in flight still receive their
// responses, no matter how far along their requests are.
func TestStopsAfterAnswers(t *testing.T) {
	for name, begin := range map[string]func(*Relay, *asked){
		"before": func(r *Relay, a *asked) { r.drain(); synctest.Wait(); a.up <- []byte("q") },
		"after":  func(r *Relay, a *asked) { a.up <- []byte("q"); r.drain() },
		"during": func(r *Relay, a *asked) { go r.drain(); a.up <- []byte("q") },
	} {
		carried(t, answer, func(t *testing.T, r *Relay) {
			a := r.ask(t.Context())
			synctest.Wait()
			begin(r, a)
			close(a.up)
			if err := <-a.over; err != nil || string(<-a.down) != "q" {
				t.Errorf("a call that asks %s ended with %v", name, err)
			}
		})
	}
}

// TestStopsStreams checks that when the relay stops, every stream ends with an error that makes the
// client reconnect elsewhere, even if the client has sent nothing.
func TestStopsStreams(t *testing.T) {
	echo := func(c *channel.Channel) {
		for {
			b, err := c.Recv(context.Background())
			if err != nil {
				c.End(&pb.RelayEnd{})
				return
			}
			_ = c.Send(context.Background(), b) // Recv returns the error
		}
	}
	for name, ask := range map[string]func(*Relay, *asked){
		"before": func(r *Relay, a *asked) { a.up <- []byte("q"); <-a.down; r.drain() },
		"after": func(r *Relay, a *asked) {
			r.drain()
			synctest.Wait()
			a.up <- []byte("q")
			<-a.down
		},
		"never": func(r *Relay, _ *asked) { r.drain(); synctest.Wait(); r.endAll() },
	} {
		carried(t, echo, func(t *testing.T, r *Relay) {
			a := r.ask(t.Context())
			ask(r, a)
			if err := <-a.over; !errors.Is(err, errStopping) {
				t.Errorf("a stream that asks %s ended with %v", name, err)
			}
		})
	}
}

// TestLargeRequests checks that large requests not read by any member cannot exhaust a relay's
// memory, and that their memory is released.
func TestLargeRequests(t *testing.T) {
	large := make([]byte, 1<<20)
	second := func(c *channel.Channel) {
		for {
			b, err := c.Recv(context.Background())
			if err != nil || string(b) == "wait" {
				return
			}
			_ = c.Send(context.Background(), b) // Recv returns the error
		}
	}
	carried(t, second, func(t *testing.T, r *Relay) {
		ask := func(first string) *asked {
			a := r.ask(t.Context())
			a.up <- []byte(first)
			a.up <- large
			synctest.Wait()
			return a
		}
		stuck, crowded := ask("wait"), ask("wait")
		if err := <-crowded.over; !errors.Is(err, errCrowded) {
			t.Errorf("large request over the limit: %v", err)
		}
		if err := <-stuck.over; !errors.Is(err, errNotAccepted) {
			t.Errorf("large request that the member does not read: %v", err)
		}
		synctest.Wait()
		well := ask("well")
		<-well.down
		if b := <-well.down; len(b) != len(large) {
			t.Errorf("received %d bytes", len(b))
		}
	})
}

// TestLargeAnswers checks that large responses not read by clients cannot exhaust a relay's memory.
func TestLargeAnswers(t *testing.T) {
	send := func(c *channel.Channel) {
		for range 3 {
			_ = c.Send(context.Background(), make([]byte, 1<<20)) // the test fails if it does not arrive
		}
		c.End(&pb.RelayEnd{})
	}
	carried(t, send, func(t *testing.T, r *Relay) {
		slow := r.ask(t.Context())
		synctest.Wait() // the client has received one message, and another is waiting
		crowded := r.ask(t.Context())
		if err := <-crowded.over; status.Code(err) != codes.ResourceExhausted {
			t.Errorf("large response over the limit: %v", err)
		}
		for range 3 {
			<-slow.down
		}
		if err := <-slow.over; err != nil {
			t.Errorf("call of a client that reads: %v", err)
		}
	})
}

// TestWhole checks that a member sees a call as if it came directly, except for the properties of
// the connection. The client receives the whole response: header, messages, trailer and error
// details.
func TestWhole(t *testing.T) {
	var calls chan *pb.RelayCall
	details := &statuspb.Status{
		Code: int32(codes.NotFound), Message: "why",
		Details: []*anypb.Any{{TypeUrl: "x", Value: []byte("y")}},
	}
	encoded, err := proto.Marshal(details)
	if err != nil {
		t.Fatal(err)
	}
	field := func(name, value string) []*pb.RelayHeaderField {
		return []*pb.RelayHeaderField{{Name: name, Value: []byte(value)}}
	}
	accept := func(c *channel.Channel, call *pb.RelayCall) func() {
		calls <- call
		go func() {
			c.SendHeader(&pb.RelayHeader{Headers: field("h", "1")})
			_ = c.Send(context.Background(), []byte("a")) // the test fails if it does not arrive
			c.End(&pb.RelayEnd{
				Code: details.Code, Message: "why", Details: encoded, Trailers: field("t-bin", "\xff"),
			})
		}()
		return nil
	}
	carriedTo(t, accept, func(t *testing.T, r *Relay) {
		calls = make(chan *pb.RelayCall, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		a := r.ask(metadata.NewIncomingContext(ctx, metadata.MD{
			"token": {"1", "2"}, "x-bin": {"\xff"}, ":authority": {"a"}, "content-type": {"c"},
			"grpc-accept-encoding": {"e"},
		}))
		got := make(map[string]string)
		call := <-calls
		for _, h := range call.Headers {
			got[h.Name] += string(h.Value)
		}
		if len(got) != 2 || got["token"] != "12" || got["x-bin"] != "\xff" ||
			call.Method != "/s/m" || call.TimeoutMs != 60_000 || call.Certificate != nil {
			t.Errorf("the member received %v", call)
		}
		err := <-a.over
		if b := <-a.down; string(b) != "a" || !proto.Equal(status.Convert(err).Proto(), details) {
			t.Errorf("response %q, %v", b, err)
		}
		if a.header.Get("h")[0] != "1" || a.trailer.Get("t-bin")[0] != "\xff" {
			t.Errorf("header %v, trailer %v", a.header, a.trailer)
		}
	})
}

// TestClientCancels checks that the member is notified immediately when a client cancels a call.
func TestClientCancels(t *testing.T) {
	var given chan struct{}
	accept := func(*channel.Channel, *pb.RelayCall) func() { return func() { close(given) } }
	carriedTo(t, accept, func(t *testing.T, r *Relay) {
		given = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		a := r.ask(ctx)
		synctest.Wait()
		cancel()
		if err := <-a.over; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case <-given:
		default:
			t.Error("the member's call was not canceled")
		}
	})
}

// TestFailuresInLog checks that the log has one line when a member stops accepting calls, and
// another when the reason changes or the member fails again after a success.
func TestFailuresInLog(t *testing.T) {
	var b strings.Builder
	m := newMembers(nil, slog.New(slog.NewTextHandler(&b, nil)), newMetrics())
	for _, why := range []error{io.EOF, io.EOF, errSilent, io.EOF, io.EOF} {
		m.failed(t.Context(), "a", why)
	}
	m.failed(t.Context(), "b", io.EOF)
	m.set(&upstream{})
	m.failed(t.Context(), "b", io.EOF)
	if n := strings.Count(b.String(), "rejects this relay"); n != 5 {
		t.Errorf("%d lines: %s", n, b.String())
	}
}

// TestUnreadByManyCalls checks that the connection of a client that does not read is closed once
// the relay holds too much data for its calls in total.
func TestUnreadByManyCalls(t *testing.T) {
	serve := func(c *channel.Channel) {
		for c.Send(context.Background(), make([]byte, 8<<10)) == nil { // ends when the link ends
		}
	}
	carried(t, serve, func(t *testing.T, r *Relay) {
		client, server := net.Pipe()
		ctx, cancel := context.WithCancel(r.answers.ConnContext(t.Context(), server))
		defer cancel()
		for range 1500 {
			r.ask(ctx)
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_, _ = client.Read(make([]byte, 1))
		}()
		synctest.Wait()
		select {
		case <-closed:
		default:
			t.Error("the connection is open")
			_ = server.Close()
		}
	})
}
