package native

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestRepeatedGrant checks that every leader keeps the promise made by a repeated grant (T3, rule
// 6). A command in the log restarts the TTL. This clears any checkpoint that another leader could
// otherwise have used to time the lease. A lease that is about to expire survives.
func TestRepeatedGrant(t *testing.T) {
	for _, r := range []*pb.GrantRequest{
		{TtlMs: 5000, RequestId: "r"},
		{TtlMs: 5000, RequestId: "r", Name: "n"},
		{TtlMs: 5000, RequestId: "r", Name: "n", Id: 7},
	} {
		n := newNode()
		s := service(n, Options{})
		first := grant(t, s, r).Lease
		if _, ok := n.commands[0].(*fsm.Grant); !ok || len(n.commands) != 1 {
			t.Errorf("%v: it is %T", r, n.commands)
		}
		n.advance(4000)
		due := []lease.Checkpoint{{
			ID: lease.ID(first.Id), Token: lease.Token(first.Token), Remaining: 1000, Stamp: 1,
		}}
		if _, err := n.Propose(t.Context(), &fsm.Checkpoint{Term: 2, Leases: due}); err != nil {
			t.Fatal(err)
		}
		n.advance(1001)
		decided := n.machine.Lessor().Due(10)
		if r.Id != 0 {
			r.Id = 8 // found by name
		}
		again := grant(t, s, r)
		if !again.Existed || again.Lease.Id != first.Id || again.Lease.Token != first.Token ||
			again.Lease.RemainingMs != 5000 {
			t.Errorf("%v: first %v, again %v", r, first, again)
		}
		if _, err := n.Propose(t.Context(), &fsm.Expire{Term: 2, Leases: decided}); err != nil {
			t.Fatal(err)
		}
		l := n.machine.Lessor()
		if left, ok := l.Remaining(lease.ID(first.Id)); !ok || left != 5000 || len(decided) != 1 {
			t.Errorf("%v: %d left, %t; %v decided", r, left, ok, decided)
		}
		if at, silent := l.SilentUntil(lease.ID(first.Id)); silent {
			t.Errorf("%v: silent until %d", r, at)
		}
	}
}

// TestRepeatedGrantRefused checks that a repeated grant does not renew a lease granted by another
// principal.
func TestRepeatedGrantRefused(t *testing.T) {
	n := newNode()
	s := service(n, Options{})
	first := grant(t, s, &pb.GrantRequest{TtlMs: 5000, RequestId: "r", Name: "n", Id: 7}).Lease
	n.advance(4000)
	for _, tt := range []struct {
		r    *pb.GrantRequest
		want pb.Reason
	}{
		{&pb.GrantRequest{TtlMs: 5000, RequestId: "s", Name: "n"}, pb.Reason_REASON_NAME_TAKEN},
		{
			&pb.GrantRequest{TtlMs: 5000, RequestId: "r", Name: "n", Owner: "o"},
			pb.Reason_REASON_NAME_TAKEN,
		},
		{&pb.GrantRequest{TtlMs: 5000, RequestId: "s", Id: 7}, pb.Reason_REASON_ID_TAKEN},
	} {
		if _, err := s.Grant(t.Context(), tt.r); api.Reason(err) != tt.want {
			t.Errorf("%v: %v", tt.r, err)
		}
	}
	if left, _ := n.machine.Lessor().Remaining(lease.ID(first.Id)); left != 1000 {
		t.Errorf("%d left", left)
	}
}

var drawOp = &pb.Op{Op: &pb.Op_DrawToken{DrawToken: &pb.DrawTokenRequest{}}}

// TestTxnDraw checks that a draw returns the next fencing token, from the same sequence as lease
// tokens. A draw counts as an operation, and an empty operation is rejected.
func TestTxnDraw(t *testing.T) {
	n := newNode()
	s := unary{&store{leases: service(n, Options{MaxTxnOps: 3}).leases, node: n}}
	grant := &pb.Op{Op: &pb.Op_Grant{Grant: &pb.GrantRequest{Id: 7, TtlMs: 5000}}}
	nested := &pb.Op{Op: &pb.Op_Txn{Txn: &pb.TxnRequest{Success: []*pb.Op{drawOp}}}}
	before := n.machine.View().KV.Revision()
	r, err := s.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.Op{grant, nested}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Responses[1].GetTxn().Responses[0].GetDrawToken(); got != 2 {
		t.Errorf("drew %d", got)
	}
	r, err = s.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.Op{drawOp, drawOp}})
	if err != nil {
		t.Fatal(err)
	}
	if got := [2]uint64{r.Responses[0].GetDrawToken(), r.Responses[1].GetDrawToken()}; got[0] != 3 ||
		got[1] != 4 || r.Header.Revision != before {
		t.Errorf("drew %v at revision %d, which was %d", got, r.Header.Revision, before)
	}
	for _, ops := range [][]*pb.Op{{drawOp, drawOp, drawOp, drawOp}, {drawOp, {}}} {
		if _, err := s.Txn(t.Context(), &pb.TxnRequest{Success: ops}); status.Code(err) !=
			codes.InvalidArgument {
			t.Errorf("%d operations: %v", len(ops), err)
		}
	}
	if last := n.machine.Lessor().LastToken(); last != 4 {
		t.Errorf("the last token is %d", last)
	}
}

// TestTxnGrantResult checks that a grant in a transaction returns the same result as a separate
// grant: whether the lease existed, and its remaining time. The remaining time equals the TTL
// because a repeated grant renews the lease (T3). If the transaction itself freed the lease's name,
// the lease counts as new.
func TestTxnGrantResult(t *testing.T) {
	n := newNode()
	s := unary{&store{leases: service(n, Options{}).leases, node: n}}
	op := func(g *pb.GrantRequest) *pb.Op { return &pb.Op{Op: &pb.Op_Grant{Grant: g}} }
	txn := func(ops ...*pb.Op) []*pb.OpResponse {
		t.Helper()
		r, err := s.Txn(t.Context(), &pb.TxnRequest{Success: ops})
		if err != nil {
			t.Fatal(err)
		}
		return r.Responses
	}
	first := txn(op(&pb.GrantRequest{Id: 7, TtlMs: 5000, RequestId: "r", Name: "n"}),
		op(&pb.GrantRequest{Id: 8, TtlMs: 6000}))
	n.advance(4000)
	again := txn(
		op(&pb.GrantRequest{Id: 9, TtlMs: 5000, RequestId: "r", Name: "n"}),
		&pb.Op{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: []byte("k"), Lease: 9}}},
		&pb.Op{Op: &pb.Op_Renew{Renew: &pb.LeaseRef{Id: 8}}})
	freed := txn(&pb.Op{Op: &pb.Op_Revoke{Revoke: &pb.LeaseRef{Id: 7}}},
		op(&pb.GrantRequest{Id: 9, TtlMs: 5000, RequestId: "r", Name: "n"}))
	for _, tt := range []struct {
		what    string
		got     *pb.GrantResponse
		id      int64
		token   uint64
		existed bool
	}{
		{"the first", first[0].GetGrant(), 7, 1, false},
		{"again", again[0].GetGrant(), 7, 1, true},
		{"freed", freed[1].GetGrant(), 9, 3, false},
	} {
		if l := tt.got.Lease; tt.got.Existed != tt.existed || l.Id != tt.id ||
			l.Token != tt.token || l.TtlMs != 5000 || l.RemainingMs != 5000 {
			t.Errorf("%s: %v", tt.what, tt.got)
		}
	}
	if l := again[2].GetRenew(); l.GetRemainingMs() != 6000 {
		t.Errorf("renewed %v", l)
	}
	if r := freed[0].GetRevoke(); r != 1 {
		t.Errorf("%d keys went with the lease, one was put on it", r)
	}
}
