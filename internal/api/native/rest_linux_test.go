package native

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/wire"
	"leasehold.dev/lease"
)

// overTCP opens a stream without HTTP/2 over a connection that has a socket.
func overTCP(t *testing.T, n Node, user string) (pb.StreamService_OpenClient, *direct.Rest) {
	t.Helper()
	rests := make(chan *direct.Rest, 1)
	server := direct.NewServer(direct.Options{
		Credentials: insecure.NewCredentials(), Codec: wire.Codec(), MaxMessage: 1 << 20,
		Patience: time.Minute,
		Interceptors: []grpc.StreamServerInterceptor{streamOf(n), func(
			srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
		) error {
			rests <- direct.RestOf(s.Context())
			return next(srv, s)
		}},
	})
	Register(server, n, Options{linger: time.Millisecond})
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
	return &grpc.GenericClientStream[pb.ClientMessage, pb.ServerMessage]{ClientStream: s}, <-rests
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
