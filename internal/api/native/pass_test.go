package native

import (
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestPartsKeepTheirOrder: a part of a renewal's answer does not pass a part before it that is too
// large to pass: after the last of them nothing more would be told.
func TestPartsKeepTheirOrder(t *testing.T) {
	many := &pb.RenewResponse{Results: make([]*pb.RenewResult, maxRenewals/8)}
	for i := range many.Results {
		many.Results[i] = &pb.RenewResult{Id: 1 << 60, TtlMs: 900}
	}
	one := &pb.RenewResponse{Results: many.Results[:1]}
	p := &pipe{ctx: t.Context(), answers: make(chan *pb.ServerMessage, 10)}
	s := &stream{
		store: &store{leases: service(newStuckNode(), Options{}), node: newStuckNode()},
		grpc:  p, ctx: p.ctx, wake: make(chan struct{}, 1), left: make(chan struct{}, 1),
		open: map[uint64]*request{1: {}, 2: {}, 3: {}},
	}
	part := func(id uint64, m *pb.RenewResponse, more bool) *request {
		return &request{stream: s, id: id, response: m, more: more}
	}
	large := &pb.ServerMessage{Responses: []*pb.Response{
		{Id: 1, More: true, Body: &pb.Response_Renew{Renew: many}},
	}}
	rest := []*request{
		part(1, one, false), part(2, one, true), part(3, many, true), part(2, one, false),
		part(3, one, false),
	}
	ready := make(chan struct{})
	close(ready)
	if err := s.sendRenewals(ready, large, rest); err != nil {
		t.Fatal(err)
	}
	m := <-p.answers
	if len(m.Responses) != 2 || m.Responses[0].Id != 2 || !m.Responses[0].More ||
		m.Responses[1].Id != 2 || m.Responses[1].More {
		t.Errorf("these pass: %v", m.Responses)
	}
	if len(large.Responses) != 1 || rest[0] == nil || rest[2] == nil || rest[4] == nil {
		t.Errorf("%d responses and %v stay", len(large.Responses), rest)
	}
}
