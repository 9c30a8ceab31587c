package native

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/wire"
	"leasehold.dev/lease"
)

// tight is a listener whose connections have little room for what is written.
type tight struct{ net.Listener }

func (l tight) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(1 << 14)
	}
	return c, err
}

// overTCP opens a stream without HTTP/2 over a connection that has a socket.
func overTCP(t *testing.T, n Node, user string) (pb.StreamService_OpenClient, *direct.Rest) {
	t.Helper()
	s, rest, _ := overTCPWith(t, n, user, Options{})
	return s, rest
}

// registrar registers services. It notes that of streams, and counts how often streams are resumed.
type registrar struct {
	*direct.Server
	*streams
	resumed atomic.Int64
}

// RegisterService implements grpc.ServiceRegistrar.
func (r *registrar) RegisterService(d *grpc.ServiceDesc, impl any) {
	if s, ok := impl.(*streams); ok {
		r.streams, impl = s, r
	}
	r.Server.RegisterService(d, impl)
}

// Begin implements intercept.Service.
func (r *registrar) Begin(g grpc.ServerStream, resume func()) (intercept.Session, error) {
	return r.streams.Begin(g, func() {
		r.resumed.Add(1)
		resume()
	})
}

func overTCPWith(t *testing.T, n Node, user string, o Options) (
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
	go func() { ended <- mux.Serve(tight{l}, nil) }()
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
	if err := conn.(*net.TCPConn).SetReadBuffer(1 << 14); err != nil {
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

// TestRenewalsAtRest: a stream whose client only renews rests, and goes on resting while it renews,
// also if a renewal takes long; another request is answered as ever, and then it rests again.
// When the login of its caller ends so does the stream, though nothing was asked.
func TestRenewalsAtRest(t *testing.T) {
	n := guarded(t)
	s, rest := overTCP(t, openNode{n}, "owner")
	if rest == nil {
		t.Fatal("the stream cannot rest")
	}
	rests := func() {
		for !rest.Later() {
			runtime.Gosched() // the test ends if it never does
		}
	}
	id := uint64(0)
	ask := func(r *pb.Request) {
		t.Helper()
		id++
		r.Id = id
		if err := s.Send(&pb.ClientMessage{Requests: []*pb.Request{r}}); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(want uint64) *pb.Response {
		t.Helper()
		for {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range m.Responses {
				if r.Id != want || r.GetError() != nil {
					t.Fatalf("%v, want an answer to %d", r, want)
				}
				return r
			}
		}
	}
	renew := func(l int64) {
		t.Helper()
		ask(&pb.Request{Body: &pb.Request_Renew{Renew: &pb.RenewRequest{
			Ids: []int64{l}, Tokens: []uint64{uint64(l)},
		}}})
	}
	for range 3 {
		rests()
		for range 10 {
			renew(2)
			if r := answer(id).GetRenew(); len(r.GetTtlMs()) != 1 || r.TtlMs[0] != 5000 {
				t.Fatalf("%v", r)
			}
		}
		rests()
		ask(&pb.Request{Body: &pb.Request_Put{Put: &pb.PutRequest{Key: key("a/k")}}})
		answer(id)
	}
	rests()
	n.mu.Lock()
	n.held[1] = []func(lease.TTL){}
	n.mu.Unlock()
	renew(1)
	late := id
	renew(2)
	answer(id)
	rests()
	for done := false; !done; runtime.Gosched() {
		n.mu.Lock()
		for _, f := range n.held[1] {
			f(5000)
			done = true
		}
		n.mu.Unlock()
	}
	answer(late)
	rests()
	n.mustDo(t, "root", &fsm.UserDelete{Name: "owner"})
	if m, err := s.Recv(); err == nil {
		t.Errorf("a caller that is no more is told %v", m)
	}
}

// Goal: long answers come whole though the stream rests by then: there is no room for them at once,
// and neither are they kept, nor does the server wait where it answers for all streams. Method:
// renewals of many leases, whose outcomes come when the stream rests, and a client that reads
// nothing before it was tried to tell them.
func TestLongAnswersAtRest(t *testing.T) {
	n := newNode()
	n.held[1] = []func(lease.TTL){}
	s, rest := overTCP(t, openNode{n}, "owner")
	const renewals, each = 8, maxRenewing / 8
	r := &pb.RenewRequest{Leases: make([]*pb.LeaseRef, each)}
	for i := range r.Leases {
		r.Leases[i] = &pb.LeaseRef{Id: 1}
	}
	for id := range renewals {
		if err := s.Send(&pb.ClientMessage{Requests: []*pb.Request{
			{Id: uint64(id + 1), Body: &pb.Request_Renew{Renew: r}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	var held []func(lease.TTL)
	for len(held) < renewals*each {
		runtime.Gosched() // the test ends if they never come
		n.mu.Lock()
		held = n.held[1]
		n.mu.Unlock()
	}
	for !rest.Later() {
		runtime.Gosched()
	}
	for _, f := range held {
		f(5000)
	}
	got := make(map[uint64]int)
	for open := renewals; open > 0; {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range m.Responses {
			if got[r.Id] += len(r.GetRenew().GetResults()); !r.More {
				open--
			}
		}
	}
	for id, results := range got {
		if results != each {
			t.Errorf("renewal %d: %d results", id, results)
		}
	}
}
