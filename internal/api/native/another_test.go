package native

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// asks sends a user's request over a new stream and returns the response.
func asks(t *testing.T, n *fakeNode, user string, of *pb.SessionRef, r *pb.Request) *pb.Response {
	t.Helper()
	s, err := pb.NewStreamServiceClient(connected(t, openNode{n}, Options{})).
		Open(as(t.Context(), user))
	if err != nil {
		t.Fatal(err)
	}
	r = proto.Clone(r).(*pb.Request)
	r.Id = 1
	if err := s.Send(&pb.ClientMessage{Session: of, Requests: []*pb.Request{r}}); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Responses) > 0 {
			return m.Responses[0]
		}
	}
}

// TestNameOfAnother checks that a caller can neither act as another principal nor learn anything
// about it. It tries using a number from the principal's session, its request ID, the principal
// field of a grant or transaction, and a hand-over to a user that is not allowed to hold the name.
func TestNameOfAnother(t *testing.T) {
	n := guarded(t)
	reason := func(what string, r *pb.Response, want pb.Reason) {
		t.Helper()
		if got := r.GetError().GetReason(); got != want {
			t.Errorf("%s: %v", what, r)
		}
	}
	denied := pb.Reason_REASON_PERMISSION_DENIED

	of := asks(t, n, "owner", nil, requestOf(&pb.SessionRequest{Nonce: 7})).GetSession().GetSession()
	put := requestOf(&pb.PutRequest{Key: key("a/k"), PrevKv: true, Value: key("owner's")})
	put.Number = 1
	reason("the owner's put", asks(t, n, "owner", of, put), 0)
	for _, user := range []string{"writer", "root"} {
		reason("by "+user, asks(t, n, user, of, put), pb.Reason_REASON_SESSION_NOT_FOUND)
	}
	reason("the owner's put again", asks(t, n, "owner", of, put), 0)

	grant := &pb.GrantRequest{TtlMs: 5000, RequestId: "r", Owner: "host"}
	first := asks(t, n, "owner", nil, requestOf(grant)).GetGrant()
	second := asks(t, n, "writer", nil, requestOf(grant)).GetGrant()
	if second == nil || second.Existed || second.Lease.GetId() == first.Lease.GetId() ||
		second.Lease.GetPrincipal() != "writer" {
		t.Errorf("with the owner's request ID, the writer gets %v", second)
	}
	if again := asks(t, n, "owner", nil, requestOf(grant)).GetGrant(); !again.GetExisted() {
		t.Errorf("the owner gets %v", again)
	}

	forged := &pb.GrantRequest{Id: 99, TtlMs: 5000, Principal: "owner"}
	reason("a grant", asks(t, n, "writer", nil, requestOf(forged)), denied)
	reason("a grant in a transaction", asks(t, n, "writer", nil, requestOf(&pb.TxnRequest{
		Failure: []*pb.Op{{Op: &pb.Op_Grant{Grant: forged}}},
	})), denied)
	give := func(to string) *pb.Request {
		return requestOf(&pb.HandOverRequest{Lease: lease2(), Principal: to})
	}
	reason("to a user that may not hold it", asks(t, n, "owner", nil, give("other")), denied)
	reason("to an unknown user", asks(t, n, "owner", nil, give("gone")), denied)
	reason("of another's lease, to oneself", asks(t, n, "writer", nil, give("writer")), denied)
	reason("to a user that may", asks(t, n, "owner", nil, give("writer")), denied)
	reason("by root", asks(t, n, "root", nil, give("writer")), 0)
	reason("of its own lease", asks(t, n, "owner", nil, requestOf(&pb.ResumeRequest{
		Name: "a/2", Secret: secretBytesOf(2),
	})), denied)
}
