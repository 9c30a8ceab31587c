package native

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/test/nativetest"
)

// byID returns requests that name another principal's leases by ID. The name, keys and holds of
// lease 2 begin with "a/", and so does a key of lease 3. Nothing else in the requests begins with
// "a/".
func byID() map[string]*pb.Request {
	three := &pb.LeaseRef{Id: 3, Token: 3}
	onto := func(id int64) *pb.Op {
		return &pb.Op{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: key("b/k"), Lease: id}}}
	}
	txn := func(ops ...*pb.Op) *pb.Request { return requestOf(&pb.TxnRequest{Success: ops}) }
	return map[string]*pb.Request{
		"describe":           requestOf(&pb.DescribeRequest{Id: 2, Keys: true}),
		"describe 3":         requestOf(&pb.DescribeRequest{Id: 3, Keys: true}),
		"check a token":      requestOf(&pb.CheckTokenRequest{Id: 2, Token: 2}),
		"check 3":            requestOf(&pb.CheckTokenRequest{Id: 3, Token: 3}),
		"change the TTL":     requestOf(&pb.ChangeTTLRequest{Lease: lease2(), TtlMs: 4000}),
		"change 3":           requestOf(&pb.ChangeTTLRequest{Lease: three, TtlMs: 4000}),
		"hand over":          requestOf(&pb.HandOverRequest{Lease: lease2(), Owner: "x"}),
		"hand over to other": requestOf(&pb.HandOverRequest{Lease: lease2(), Principal: "other"}),
		"resume":             requestOf(&pb.ResumeRequest{Id: 2, Secret: secretBytesOf(2)}),
		"attach":             requestOf(&pb.AttachRequest{Lease: lease2(), Keys: [][]byte{key("b/k")}}),
		"attach to 3":        requestOf(&pb.AttachRequest{Lease: three, Keys: [][]byte{key("b/k")}}),
		"cache":              requestOf(&pb.CacheRequest{Lease: lease2()}),
		"put":                requestOf(&pb.PutRequest{Key: key("b/k"), Lease: 2}),
		"put on 3":           requestOf(&pb.PutRequest{Key: key("b/k"), Lease: 3}),
		"put in it":          txn(onto(2)),
		"put on 3 in it":     txn(onto(3)),
		"renew in it":        txn(&pb.Op{Op: &pb.Op_Renew{Renew: lease2()}}),
		"revoke in it":       txn(&pb.Op{Op: &pb.Op_Revoke{Revoke: lease2()}}),
		"renew 3 in it":      txn(&pb.Op{Op: &pb.Op_Renew{Renew: three}}),
		"revoke 3":           txn(&pb.Op{Op: &pb.Op_Revoke{Revoke: three}}),
		"revoke":             requestOf(&pb.RevokeRequest{Leases: []*pb.LeaseRef{lease2(), three}}),
		"renew":              requestOf(&pb.RenewRequest{Leases: []*pb.LeaseRef{lease2()}}),
		"renew 3":            requestOf(&pb.RenewRequest{Leases: []*pb.LeaseRef{three}}),
		"renew in columns":   requestOf(&pb.RenewRequest{Ids: []int64{3}}),
		"grant":              requestOf(&pb.GrantRequest{Id: 2, TtlMs: 5000}),
		"list":               requestOf(&pb.ListRequest{Keys: true}),
	}
}

// TestRefusalsRevealNothing checks that a refusal does not reveal a lease's name, keys or holds to
// a caller that knows only its ID. It searches the responses to all requests for the prefix of the
// owner's keys and names.
func TestRefusalsRevealNothing(t *testing.T) {
	n := guarded(t)
	n.mustDo(t, "root", &fsm.Put{Key: "a/3", Lease: 3})
	n.mustDo(t, "root", &fsm.Put{Key: "b/k"})
	for name, r := range byID() {
		conn := connected(t, openNode{n}, Options{})
		s, err := pb.NewStreamServiceClient(conn).Open(as(t.Context(), "other"))
		if err != nil {
			t.Fatal(err)
		}
		r.Id = 1
		if err := s.Send(&pb.ClientMessage{Requests: []*pb.Request{r}}); err != nil {
			t.Fatal(err)
		}
		var answer *pb.Response
		for answer == nil {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Responses) > 0 {
				answer = m.Responses[0]
			}
		}
		text := prototext.Format(answer)
		if strings.Contains(text, "a/") {
			t.Errorf("%s: the answer reveals %s", name, text)
		}
		denied := strings.Contains(text, pb.Reason_REASON_PERMISSION_DENIED.String())
		if taken := name == "list" || name == "grant"; denied == taken {
			t.Errorf("%s: answer %s", name, text)
		}
	}
}

// TestRenewalByNameRevealsNothing checks that a caller that is not allowed to see a name gets the
// same response to a renewal whether or not another tenant has a lease with that name.
func TestRenewalByNameRevealsNothing(t *testing.T) {
	n := guarded(t)
	conn := connected(t, n, Options{})
	answer := func(user, name string) *pb.RenewResult {
		m, err := pb.NewLeaseServiceClient(conn).Renew(as(t.Context(), user), &pb.RenewRequest{
			Leases: []*pb.LeaseRef{{Name: name, Token: 2}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return m.Results[0]
	}
	denied := &pb.RenewResult{Reason: pb.Reason_REASON_PERMISSION_DENIED}
	for _, name := range []string{"a/2", "a/none"} {
		for _, user := range []string{"other", "none"} {
			if r := answer(user, name); !proto.Equal(r, denied) {
				t.Errorf("%s by %s: answer %v", name, user, r)
			}
		}
	}
	if r := answer("reader", "a/none"); r.Reason != pb.Reason_REASON_LEASE_NOT_FOUND {
		t.Errorf("a user that may see the name gets %v", r)
	}
	if r := answer("owner", "a/2"); r.Id != 2 || r.TtlMs == 0 {
		t.Errorf("its owner gets %v", r)
	}
}

// unsignaled is a node that does not signal changes of users or roles.
type unsignaled struct{ openNode }

// AccessChanged implements api.Node.
func (unsignaled) AccessChanged() <-chan struct{} { return nil }

// TestAnonymousStreamWritesNothing checks that once access control is enabled, an anonymous request
// is not appended to the log, even on an earlier stream that has not ended yet.
func TestAnonymousStreamWritesNothing(t *testing.T) {
	n := guarded(t)
	n.mustDo(t, "root", &fsm.AuthDisable{})
	s, err := pb.NewStreamServiceClient(connected(t, unsignaled{openNode{n}}, Options{})).
		Open(as(t.Context(), ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil { // the stream is open; this message names the leader
		t.Fatal(err)
	}
	n.mustDo(t, "", &fsm.AuthEnable{})
	commands := len(n.commands)
	r := requestOf(&pb.PutRequest{Key: key("b/k")})
	r.Id = 1
	if err := s.Send(&pb.ClientMessage{Requests: []*pb.Request{r}}); err != nil {
		t.Fatal(err)
	}
	m, err := s.Recv()
	if refused, err := nativetest.Refused(nil, err); len(m.GetResponses()) == 0 && !refused {
		t.Errorf("the stream ended with %v", err)
	}
	if more := len(n.commands) - commands; more != 0 {
		t.Errorf("%d anonymous commands are in the log; answers %v", more, m)
	}
}
