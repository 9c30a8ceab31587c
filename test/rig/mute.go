package rig

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
)

// mute is a member that opens sessions and grants leases. All other requests go to answer, which
// returns nil to leave a request unanswered.
type mute struct {
	pb.UnimplementedStreamServiceServer
	answer func(*pb.Request) *pb.Response
}

// Open implements pb.StreamServiceServer.
func (m mute) Open(s pb.StreamService_OpenServer) error {
	for {
		in, err := s.Recv()
		if err != nil {
			return err
		}
		for _, r := range in.Requests {
			a := m.grants(r)
			if a == nil {
				a = m.answer(r)
			}
			if a == nil {
				continue
			}
			a.Id = r.Id
			if err := s.Send(&pb.ServerMessage{Responses: []*pb.Response{a}}); err != nil {
				return err
			}
		}
	}
}

// grants answers the requests that a client sends in order to grant a lease. It returns nil for all
// other requests.
func (mute) grants(r *pb.Request) *pb.Response {
	switch x := r.Body.(type) {
	case *pb.Request_Session:
		return &pb.Response{Body: &pb.Response_Session{Session: &pb.SessionResponse{
			Session: &pb.SessionRef{Id: 1, Nonce: x.Session.Nonce},
		}}}
	case *pb.Request_Grant:
		return &pb.Response{Body: &pb.Response_Grant{Grant: &pb.GrantResponse{Lease: &pb.Lease{
			Id: 1, Token: 1, TtlMs: x.Grant.TtlMs, RemainingMs: x.Grant.TtlMs,
		}}}}
	}
	return nil
}

// Mute runs a test in virtual time with a client of a simulated member. The member opens sessions
// and grants leases. All other requests, including renewals, go to answer, which returns nil to
// leave a request unanswered. A lease that is not renewed expires on the client's clock.
func Mute(
	t *testing.T, answer func(*pb.Request) *pb.Response, test func(*testing.T, *client.Client),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, s := bufconn.Listen(64<<10), grpc.NewServer()
		pb.RegisterStreamServiceServer(s, mute{answer: answer})
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		c, err := client.New(client.Config{
			Endpoints: []string{"mute:1"},
			Dial: func(ctx context.Context, _ string) (net.Conn, error) {
				return l.DialContext(ctx)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		test(t, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		s.Stop()
		<-served
	})
}

// Unanswered answers no requests. Use it with Mute.
func Unanswered(*pb.Request) *pb.Response { return nil }
