package server

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// streamTest is an open leasehold.v1 stream to one member.
type streamTest struct {
	*running
	t     *testing.T
	grpc  pb.StreamService_OpenClient
	last  uint64 // ID of the last request
	queue []*pb.Response
}

// send numbers requests and sends them in one message.
func (s *streamTest) send(list ...*pb.Request) {
	s.t.Helper()
	for _, r := range list {
		s.last++
		r.Id = s.last
	}
	if err := s.grpc.Send(&pb.ClientMessage{Requests: list}); err != nil {
		s.t.Fatal(err)
	}
}

// next returns the next response, receiving a message if necessary.
func (s *streamTest) next() *pb.Response {
	s.t.Helper()
	for len(s.queue) == 0 {
		m, err := s.grpc.Recv()
		if err != nil {
			s.t.Fatal(err)
		}
		s.queue = m.Responses
	}
	r := s.queue[0]
	s.queue = s.queue[1:]
	return r
}

// call sends one request and returns its response.
func (s *streamTest) call(r *pb.Request) *pb.Response {
	s.t.Helper()
	s.send(r)
	got := s.next()
	for more := got; more.Id == r.Id && more.More && more.GetRenew() != nil; {
		more = s.next() // a slow machine may split the response to a renewal
		proto.Merge(got.GetRenew(), more.GetRenew())
		got.Id = more.Id
	}
	if got.Id != r.Id {
		s.t.Fatalf("response %v to request %v", got, r)
	}
	return got
}

func (s *streamTest) fails(r *pb.Request, want pb.Reason) {
	s.t.Helper()
	if got := s.call(r).GetError().GetReason(); got != want {
		s.t.Errorf("%v: %v, want %v", r, got, want)
	}
}
