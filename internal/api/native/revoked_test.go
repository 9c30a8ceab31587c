package native

import (
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
)

// Goal: what is open ends when the right to it is taken away, with a refusal, and the stream and
// what its user may still do go on. Method: a watch, a wait for a turn and a cache of one user,
// whose role is taken from it.
func TestRightTakenAway(t *testing.T) {
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
	await(func(r *pb.Response) bool { // a lease without a name is the user's as before
		return r.GetRevoke().GetResults()[0].Reason == pb.Reason_REASON_UNSPECIFIED
	}, 4)
}
