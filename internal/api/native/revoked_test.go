package native

import (
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestPermissionRemoved checks that when a user loses a role, its watch, wait and cache end with a
// permission error. The stream and its other requests continue.
func TestPermissionRemoved(t *testing.T) {
	n := guarded(t)
	n.mustDo(t, "root", &fsm.Put{Key: "a/q/1", Lease: 1})
	s, err := pb.NewStreamServiceClient(connected(t, openNode{n}, Options{})).
		Open(as(t.Context(), "owner"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.ClientMessage{Requests: []*pb.Request{
		{Id: 1, Body: &pb.Request_Watch{Watch: &pb.WatchRequest{Key: key("a/k")}}},
		{Id: 2, Body: &pb.Request_Txn{Txn: &pb.TxnRequest{
			Success: []*pb.Op{{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: key("a/q/2"), Lease: 2}}}},
			Wait:    &pb.Wait{Key: key("a/q/2"), Prefix: key("a/q/")},
		}}},
		{Id: 3, Body: &pb.Request_Cache{Cache: &pb.CacheRequest{Lease: lease2()}}},
	}}); err != nil {
		t.Fatal(err)
	}
	await := func(ok func(*pb.Response) bool, ids ...uint64) {
		t.Helper()
		left := make(map[uint64]bool)
		for _, id := range ids {
			left[id] = true
		}
		for len(left) > 0 {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range m.Responses {
				if !ok(r) {
					t.Fatalf("%v", r)
				}
				delete(left, r.Id)
			}
		}
	}
	await(func(r *pb.Response) bool { return r.More && r.GetError() == nil }, 1, 2, 3)
	n.mustDo(t, "root", &fsm.UserRevokeRole{User: "owner", Role: "owner"})
	await(func(r *pb.Response) bool {
		return !r.More && r.GetError().GetReason() == pb.Reason_REASON_PERMISSION_DENIED
	}, 1, 2, 3)
	if err := s.Send(&pb.ClientMessage{Requests: []*pb.Request{
		{Id: 4, Body: &pb.Request_Revoke{Revoke: &pb.RevokeRequest{Leases: []*pb.LeaseRef{{Id: 1}}}}},
	}}); err != nil {
		t.Fatal(err)
	}
	await(func(r *pb.Response) bool { // a lease without a name still belongs to the user
		return r.GetRevoke().GetResults()[0].Reason == pb.Reason_REASON_UNSPECIFIED
	}, 4)
}

// takingNode is a node on which the user "owner" loses its role between a transaction and its
// answer.
type takingNode struct {
	openNode
	t *testing.T
}

// Submit implements Node.
func (n takingNode) Submit(list []Submission) {
	for i := range list {
		list[i].To = takenFirst{n, list[i].To}
	}
	n.openNode.Submit(list)
}

// takenFirst removes the role before it forwards an answer.
type takenFirst struct {
	n  takingNode
	to Answered
}

// Answered implements Answered.
func (x takenFirst) Answered(res fsm.Result, err error) {
	x.n.mustDo(x.n.t, "root", &fsm.UserRevokeRole{User: "owner", Role: "owner"})
	x.to.Answered(res, err)
}

// TestPermissionRemovedBeforeWait covers a caller that loses its permission for a queue after its
// transaction but before the wait starts. It receives the transaction's result and a permission
// error for the wait, but nothing else about the queue.
func TestPermissionRemovedBeforeWait(t *testing.T) {
	n := guarded(t)
	s, err := pb.NewStreamServiceClient(connected(t, takingNode{openNode{n}, t}, Options{})).
		Open(as(t.Context(), "owner"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.ClientMessage{Requests: []*pb.Request{
		{Id: 1, Body: &pb.Request_Txn{Txn: &pb.TxnRequest{
			Success: []*pb.Op{{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: key("a/q/2"), Lease: 2}}}},
			Wait:    &pb.Wait{Key: key("a/q/2"), Prefix: key("a/q/")},
		}}},
	}}); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Responses) == 0 {
			continue
		}
		r, made := m.Responses[0], m.Responses[0].GetTxn()
		denied := made.GetWaitRefused().GetReason() == pb.Reason_REASON_PERMISSION_DENIED
		if len(m.Responses) > 1 || r.More || !made.GetSucceeded() || !denied || made.Ticket != nil {
			t.Errorf("received %v", m.Responses)
		}
		return
	}
}

// fillingNode is a node whose leader allows every read to be cached, in term 9.
type fillingNode struct{ openNode }

// Submit implements Node.
func (n fillingNode) Submit(list []Submission) {
	for _, s := range list {
		if s.Fill != nil {
			s.Fill.Term = 9
		}
	}
	n.openNode.Submit(list)
}

// CloseCache implements Node. Streams that end at the same time call it concurrently.
func (fillingNode) CloseCache(fsm.Holding, Cache) {}

// TestReadForTheCacheOfAnother checks that only the holder of a cache can add ranges to it.
// Otherwise a reader could name another principal's lease as its cache, and so delay writes. Two
// other users with the same permissions try to do so.
func TestReadForTheCacheOfAnother(t *testing.T) {
	n := guarded(t)
	n.mustDo(t, "root", &fsm.Grant{Terms: lease.Terms{ID: 4, TTL: 5000, Principal: "reader"}})
	conn := connected(t, fillingNode{openNode{n}}, Options{})
	read := &pb.Request{Id: 2, Body: &pb.Request_ReadRange{
		ReadRange: &pb.RangeRequest{Key: key("a/k"), Cache: lease2()},
	}}
	for user, c := range map[string]struct {
		opens *pb.LeaseRef
		term  uint64
	}{
		"owner": {lease2(), 9}, "root": {nil, 0}, "writer": {lease2(), 0},
		"reader": {&pb.LeaseRef{Id: 4, Token: 4}, 0},
	} {
		s, err := pb.NewStreamServiceClient(conn).Open(as(t.Context(), user))
		if err != nil {
			t.Fatal(err)
		}
		m := &pb.ClientMessage{}
		if c.opens != nil {
			m.Requests = append(m.Requests, &pb.Request{
				Id: 1, Body: &pb.Request_Cache{Cache: &pb.CacheRequest{Lease: c.opens}},
			})
		}
		m.Requests = append(m.Requests, read)
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
		var answer *pb.RangeResponse
		for answer == nil {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range m.Responses {
				if r.Id == 2 {
					answer = r.GetReadRange()
				}
			}
		}
		if len(answer.Kvs) != 1 || answer.CacheTerm != c.term {
			t.Errorf("%s: %v, want term %d", user, answer, c.term)
		}
	}
}
