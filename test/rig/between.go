package rig

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/test/inprocess"
)

// Between is a proxy between a client and a member. It can answer requests in place of the member.
type Between struct {
	pb.UnimplementedStreamServiceServer
	// Instead, if set, returns the response to a request, or nil to forward the request to the
	// member. A single goroutine calls it.
	Instead func(r *pb.Request) *pb.Response
	// Seen, if set, is called with each response from the member and can modify it.
	Seen func(r *pb.Response)

	member *grpc.ClientConn
}

// Open implements pb.StreamServiceServer.
func (b *Between) Open(s pb.StreamService_OpenServer) error {
	to, err := pb.NewStreamServiceClient(b.member).Open(s.Context())
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards s.Send
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		for {
			m, err := to.Recv()
			if err != nil {
				return
			}
			for _, r := range m.Responses {
				if b.Seen != nil {
					b.Seen(r)
				}
			}
			mu.Lock()
			_ = s.Send(m) // if this fails, the other direction ends the stream
			mu.Unlock()
		}
	})
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		var own []*pb.Response
		pass := m.Requests[:0:0]
		for _, r := range m.Requests {
			var a *pb.Response
			if b.Instead != nil {
				a = b.Instead(r)
			}
			if a == nil {
				pass = append(pass, r)
				continue
			}
			a.Id = r.Id
			own = append(own, a)
		}
		if len(own) > 0 {
			mu.Lock()
			_ = s.Send(&pb.ServerMessage{Responses: own})
			mu.Unlock()
		}
		if m.Requests = pass; len(pass) > 0 {
			if err := to.Send(m); err != nil {
				return err
			}
		}
	}
}

// Serve returns a client that connects to a member through the proxy.
func (b *Between) Serve(t testing.TB, m *inprocess.Member) *client.Client {
	t.Helper()
	var err error
	b.member, err = grpc.NewClient(m.Endpoint(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(inprocess.Dialer(t)))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(inprocess.Dir(t), "s")
	l, s := inprocess.Listen(t, socket), grpc.NewServer()
	pb.RegisterStreamServiceServer(s, b)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		_ = b.member.Close()
		<-served
	})
	return inprocess.Connect(t, client.Config{}, "unix:"+socket)
}

// Through returns a client that connects to a member through a proxy. For each matching request,
// the proxy calls answer with the number of matching requests so far. answer returns the response,
// or nil to forward the request.
func Through(
	t testing.TB, m *inprocess.Member, match func(*pb.Request) bool,
	answer func(n int) *pb.Response,
) *client.Client {
	t.Helper()
	n := 0
	b := &Between{Instead: func(r *pb.Request) *pb.Response {
		if !match(r) {
			return nil
		}
		n++
		return answer(n)
	}}
	return b.Serve(t, m)
}

// Grants matches requests to grant a lease.
func Grants(r *pb.Request) bool { return r.GetGrant() != nil }

// Revokes matches requests to revoke a lease.
func Revokes(r *pb.Request) bool { return r.GetRevoke() != nil }

// Lists matches requests to list leases.
func Lists(r *pb.Request) bool { return r.GetList() != nil }

// Reads matches range reads.
func Reads(r *pb.Request) bool { return r.GetReadRange() != nil }

// Puts matches puts.
func Puts(r *pb.Request) bool { return r.GetPut() != nil }

// Txns matches transactions.
func Txns(r *pb.Request) bool { return r.GetTxn() != nil }

// Watches matches requests to start a watch.
func Watches(r *pb.Request) bool { return r.GetWatch() != nil }

// Does reports whether the success branch of a transaction request contains an operation of a
// certain type. The type is given by its getter, such as (*pb.Op).GetGrant.
func Does[T any](r *pb.Request, something func(*pb.Op) *T) bool {
	return slices.ContainsFunc(r.GetTxn().GetSuccess(), func(o *pb.Op) bool {
		return something(o) != nil
	})
}

// Refusal returns an error response with the given reason.
func Refusal(r pb.Reason) *pb.Response {
	return &pb.Response{Body: &pb.Response_Error{Error: &pb.Error{Reason: r, Message: "so it is"}}}
}

// Refused rejects every request. Use it with Through.
func Refused(int) *pb.Response { return Refusal(pb.Reason_REASON_PERMISSION_DENIED) }

// Unsure answers the first two requests with errors that leave their outcome unknown to the client,
// and forwards the rest. It calls do before the first response. Use it with Through.
func Unsure(do func()) func(n int) *pb.Response {
	return func(n int) *pb.Response {
		switch n {
		case 1:
			do()
			return Refusal(pb.Reason_REASON_UNKNOWN_OUTCOME)
		case 2:
			return Refusal(pb.Reason_REASON_SESSION_NOT_FOUND)
		}
		return nil
	}
}
