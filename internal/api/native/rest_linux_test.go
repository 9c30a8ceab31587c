package native

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/wire"
)

// registrar registers services and keeps the stream service.
type registrar struct {
	*direct.Server
	*streams
}

// RegisterService implements grpc.ServiceRegistrar.
func (r *registrar) RegisterService(d *grpc.ServiceDesc, impl any) {
	if s, ok := impl.(*streams); ok {
		r.streams = s
	}
	r.Server.RegisterService(d, impl)
}

// overTCP opens a stream without HTTP/2 over a real socket.
func overTCP(t *testing.T, n Node, user string, o Options) (
	pb.StreamService_OpenClient, *direct.Rest, *registrar,
) {
	t.Helper()
	rests := make(chan *direct.Rest, 1)
	server := direct.NewServer(direct.Options{
		Credentials: insecure.NewCredentials(), Codec: wire.Codec(), MaxMessage: 1 << 20,
		Patience: time.Minute,
		Interceptors: []intercept.Stream{streamOf(n), func(
			s grpc.ServerStream, _ *grpc.StreamServerInfo,
		) (grpc.ServerStream, intercept.Leave, error) {
			rests <- direct.RestOf(s.Context())
			return s, nil, nil
		}},
	})
	o.linger = time.Millisecond
	r := &registrar{Server: server}
	Register(r, n, o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := listen.NewMux(listen.MuxOptions{Direct: true})
	ended := make(chan error, 2)
	go func() { ended <- mux.Serve(l, nil) }()
	go func() { ended <- server.Serve(mux.Direct()) }()
	t.Cleanup(func() {
		server.Stop()
		server.GracefulStop()
		_ = mux.Close()
		<-ended
		<-ended
	})
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(as(t.Context(), user))
	t.Cleanup(cancel)
	s, err := direct.Open(ctx, conn, pb.StreamService_Open_FullMethodName, wire.Codec())
	if err != nil {
		t.Fatal(err)
	}
	return &grpc.GenericClientStream[pb.ClientMessage, pb.ServerMessage]{ClientStream: s}, <-rests, r
}

// pausing is a client whose only stream pauses whenever it can.
type pausing struct {
	*testing.T
	pb.StreamService_OpenClient
	server *registrar
	id     uint64
}

func pauseOverTCP(t *testing.T, n Node, o Options) *pausing {
	t.Helper()
	s, rest, server := overTCP(t, n, "owner", o)
	if rest == nil {
		t.Fatal("the stream cannot pause")
	}
	return &pausing{t, s, server, 0}
}

// ask sends a request and returns the response to it, skipping other responses.
func (p *pausing) ask(r *pb.Request) *pb.Response {
	p.Helper()
	p.id++
	r.Id = p.id
	if err := p.Send(&pb.ClientMessage{Requests: []*pb.Request{r}}); err != nil {
		p.Fatal(err)
	}
	for {
		for _, got := range p.recv().Responses {
			switch {
			case got.Id != p.id:
			case got.GetError() != nil:
				p.Fatalf("the answer to %d is %v", p.id, got)
			default:
				return got
			}
		}
	}
}

func (p *pausing) recv() *pb.ServerMessage {
	p.Helper()
	m, err := p.Recv()
	if err != nil {
		p.Fatal(err)
	}
	return m
}

// pauses waits until the stream has paused.
func (p *pausing) pauses() {
	for !p.paused() {
		runtime.Gosched() // otherwise the test times out
	}
}

func (p *pausing) paused() bool {
	all := &p.server.pauses
	all.mu.Lock()
	defer all.mu.Unlock()
	for t := range all.streams {
		t.waker.mu.Lock()
		paused := t.waker.woken == nil
		t.waker.mu.Unlock()
		if paused {
			return true
		}
	}
	return false
}

// gone waits until there are no streams.
func (p *pausing) gone() {
	for some := true; some; runtime.Gosched() { // otherwise the test times out
		p.server.pauses.mu.Lock()
		some = len(p.server.pauses.streams) > 0 || p.server.pauses.empty != nil
		p.server.pauses.mu.Unlock()
	}
}

func (p *pausing) renew() {
	p.Helper()
	r := p.ask(&pb.Request{Body: &pb.Request_Renew{Renew: &pb.RenewRequest{
		Ids: []int64{2}, Tokens: []uint64{2},
	}}})
	if ttls := r.GetRenew().GetTtlMs(); len(ttls) != 1 || ttls[0] != 5000 {
		p.Fatalf("%v", r)
	}
}

// TestPauses checks that a paused stream resumes for a new leader, changes to users or permissions,
// renewals and other requests, and then pauses again.
func TestPauses(t *testing.T) {
	n := live(guarded(t))
	go func() { _ = n.hub.Run(t.Context()) }()
	p := pauseOverTCP(t, n, Options{})
	p.recv() // the first message names the leader
	for leader := range uint64(3) {
		p.pauses()
		n.lead(leader + 1)
		if m := p.recv(); m.Leadership.GetLeaderId() != leader+1 {
			t.Fatalf("got %v for leader %d", m, leader+1)
		}
		for range 5 {
			p.pauses()
			p.renew()
		}
		n.changeAccess()
		p.pauses()
		p.ask(&pb.Request{Body: &pb.Request_Put{Put: &pb.PutRequest{Key: key("a/k")}}})
		p.pauses()
	}
}

// TestPausedStreamWatches checks that a paused stream can have a watch. An event of the watch
// resumes the stream even if nothing else happens. The stream pauses again after the watch is
// canceled.
func TestPausedStreamWatches(t *testing.T) {
	n := live(guarded(t))
	go func() { _ = n.hub.Run(t.Context()) }()
	p := pauseOverTCP(t, n, Options{})
	p.recv() // the first message names the leader
	p.pauses()
	p.ask(&pb.Request{Body: &pb.Request_Watch{Watch: &pb.WatchRequest{Key: []byte("a/k")}}})
	n.mustDo(t, "root", &fsm.Put{Key: "a/k", Value: []byte("new")})
	for received := false; !received; {
		for _, r := range p.recv().Responses {
			received = received || len(r.GetWatch().GetEvents()) > 0
		}
	}
	if err := p.Send(&pb.ClientMessage{Requests: []*pb.Request{
		{Id: p.id + 1, Body: &pb.Request_Cancel{Cancel: p.id}},
	}}); err != nil {
		t.Fatal(err)
	}
	p.id++
	p.pauses()
	p.renew()
}

// TestPausedStreamsEnd checks that a paused stream ends, and leaves nothing behind, when its server
// stops, its user is deleted, or its client half-closes it.
func TestPausedStreamsEnd(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(p *pausing, n *fakeNode, stop chan struct{})
		want string // part of the error; empty for any error
	}{
		"the server stops": {
			func(_ *pausing, _ *fakeNode, stop chan struct{}) { close(stop) }, "stopped",
		},
		"the user is deleted": {func(_ *pausing, n *fakeNode, _ chan struct{}) {
			n.mustDo(t, "root", &fsm.UserDelete{Name: "owner"})
		}, ""},
		"the client ends": {func(p *pausing, _ *fakeNode, _ chan struct{}) { _ = p.CloseSend() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n, stop := guarded(t), make(chan struct{})
			p := pauseOverTCP(t, openNode{n}, Options{Stop: stop})
			p.recv() // the first message names the leader
			p.renew()
			p.pauses()
			end.by(p, n, stop)
			switch _, err := p.Recv(); {
			case err == nil:
				t.Error("the stream did not end")
			case end.want != "" && !strings.Contains(status.Convert(err).Message(), end.want):
				t.Errorf("ended by %v", err)
			}
			p.gone()
		})
	}
}
