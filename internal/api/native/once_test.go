package native

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/lease"
)

// onNewStream sends messages over a new stream and returns all responses.
func onNewStream(t *testing.T, n Node, messages ...*pb.ClientMessage) (out []*pb.Response) {
	t.Helper()
	w := &pipe{
		ctx: t.Context(), requests: make(chan *pb.ClientMessage, len(messages)),
		answers: make(chan *pb.ServerMessage, 100),
	}
	for _, m := range messages {
		w.requests <- m
	}
	close(w.requests)
	s := &streams{store: &store{leases: service(n, Options{}).leases, node: n}}
	if err := s.Open(w); err != nil {
		t.Fatal(err)
	}
	for len(w.answers) > 0 {
		out = append(out, (<-w.answers).Responses...)
	}
	return out
}

func openSession(t *testing.T, n Node, nonce uint64) *pb.SessionRef {
	t.Helper()
	r := onNewStream(t, n, &pb.ClientMessage{Requests: []*pb.Request{{
		Id: 1, Body: &pb.Request_Session{Session: &pb.SessionRequest{Nonce: nonce}},
	}}})
	if len(r) != 1 || r[0].GetSession().GetSession().GetNonce() != nonce {
		t.Fatalf("%v", r)
	}
	return r[0].GetSession().GetSession()
}

// TestOnce checks that a write repeated with the same number on another stream takes effect once
// and returns the first response.
func TestOnce(t *testing.T) {
	n := newNode()
	s := openSession(t, n, 1<<63)
	grant := &pb.GrantRequest{TtlMs: 5000, Resumable: true}
	number := uint64(0)
	repeat := func(r *pb.Request) (first, again *pb.Response) {
		t.Helper()
		number++
		r.Id, r.Number = 9, number
		m := &pb.ClientMessage{Session: s, Requests: []*pb.Request{r}}
		one := onNewStream(t, n, m)
		n.advance(4000)
		two := onNewStream(t, n, m)
		if len(one) != 1 || len(two) != 1 {
			t.Fatalf("%v, again %v", one, two)
		}
		return one[0], two[0]
	}
	for name, r := range map[string]*pb.Request{
		"put": {Body: &pb.Request_Put{Put: &pb.PutRequest{Key: []byte("k"), PrevKv: true}}},
		"delete": {Body: &pb.Request_DeleteRange{DeleteRange: &pb.DeleteRequest{
			Key: []byte("k"), PrevKv: true,
		}}},
		"refused": {Body: &pb.Request_Put{Put: &pb.PutRequest{
			Key: []byte("none"), IgnoreValue: true,
		}}},
		"txn": {Body: &pb.Request_Txn{Txn: &pb.TxnRequest{Success: []*pb.Op{
			{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: []byte("t"), PrevKv: true}}},
			{Op: &pb.Op_ReadRange{ReadRange: &pb.RangeRequest{Key: []byte("t")}}},
			drawOp,
		}}}},
	} {
		first, again := repeat(r)
		if !proto.Equal(first, again) || (first.GetError() != nil) != (name == "refused") {
			t.Errorf("%s: %v\nagain %v", name, first, again)
		}
	}
	first, again := repeat(&pb.Request{Body: &pb.Request_Grant{Grant: grant}})
	a, b := first.GetGrant(), again.GetGrant()
	if a.Lease.Id != b.GetLease().GetId() || len(a.Secret) == 0 || len(b.Secret) > 0 ||
		a.Lease.RemainingMs != 5000 || b.Lease.RemainingMs != 5000 {
		t.Errorf("grant: %v\nagain %v", first, again)
	}
	if left, _ := n.machine.Lessor().Remaining(lease.ID(a.Lease.Id)); left != 5000 {
		t.Errorf("the repetition of a number did not renew: %d left", left)
	}
	granted := &pb.GrantRequest{Id: 77, TtlMs: 5000, Resumable: true}
	first, again = repeat(&pb.Request{Body: &pb.Request_Txn{Txn: &pb.TxnRequest{
		Success: []*pb.Op{{Op: &pb.Op_Grant{Grant: granted}}},
	}}})
	a = first.GetTxn().Responses[0].GetGrant()
	b = again.GetTxn().GetResponses()[0].GetGrant()
	left, _ := n.machine.Lessor().Remaining(77)
	if a.Lease.Token != b.Lease.Token || len(a.Secret) == 0 || len(b.Secret) > 0 ||
		a.Lease.RemainingMs != 5000 || b.Lease.RemainingMs != 5000 || left != 5000 {
		t.Errorf("grant in a transaction: %v\nagain %v; %d left", first, again, left)
	}
	first, again = repeat(&pb.Request{Body: &pb.Request_Revoke{Revoke: &pb.RevokeRequest{
		Leases: []*pb.LeaseRef{{Id: 77}, {Id: 78}},
	}}})
	if !proto.Equal(first, again) || first.GetRevoke().Results[0].Reason != 0 ||
		first.GetRevoke().Results[1].Reason != pb.Reason_REASON_LEASE_NOT_FOUND {
		t.Errorf("revoke: %v\nagain %v", first, again)
	}
}

// TestOnceRefused checks that a write with an unknown session is rejected. If the number was used
// by a different request, the recorded response is never misinterpreted.
func TestOnceRefused(t *testing.T) {
	n := newNode()
	s := openSession(t, n, 5)
	other := proto.CloneOf(s)
	other.Nonce++
	put := func(id, number uint64) *pb.Request {
		r := putRequest(id, 0)
		r.Number = number
		return r
	}
	txn := &pb.Request{Id: 3, Number: 1, Body: &pb.Request_Txn{Txn: &pb.TxnRequest{
		Success: []*pb.Op{{Op: &pb.Op_Put{Put: putRequest(0, 0).GetPut()}}},
	}}}
	one := func(r *pb.Request) []*pb.Request { return []*pb.Request{r} }
	got := onNewStream(t, n,
		&pb.ClientMessage{Session: s, Requests: one(put(1, 1))},
		&pb.ClientMessage{Session: other, Requests: one(put(2, 2))},
		&pb.ClientMessage{Session: s, Requests: one(txn)},
		&pb.ClientMessage{Session: s, AcknowledgedBelow: 2, Requests: one(put(4, 1))},
		&pb.ClientMessage{Requests: one(put(5, 1))},
		&pb.ClientMessage{Session: s, Requests: one(putRequest(6, 0))},
	)
	want := []pb.Reason{
		0, pb.Reason_REASON_SESSION_NOT_FOUND, pb.Reason_REASON_SESSION_NOT_FOUND,
		pb.Reason_REASON_SESSION_NOT_FOUND, pb.Reason_REASON_INVALID, 0,
	}
	for i, r := range got {
		if r.Id != uint64(i+1) || r.GetError().GetReason() != want[i] {
			t.Errorf("%v, want %v", r, want[i])
		}
	}
	if len(got) != len(want) || n.View().KV.Get("k").Version != 2 {
		t.Errorf("%d responses, %v", len(got), n.View().KV.Get("k"))
	}
}

// numbered returns a request of every type that can have a number, and of every variant that has
// its own type of outcome.
func numbered() map[string]*pb.Request {
	key := []byte("k")
	put := &pb.PutRequest{Key: key, PrevKv: true}
	bound := &pb.PutRequest{Key: key, TtlMs: 5000}
	op := func(p *pb.PutRequest) *pb.Op { return &pb.Op{Op: &pb.Op_Put{Put: p}} }
	inner := func(r *pb.TxnRequest) *pb.Op { return &pb.Op{Op: &pb.Op_Txn{Txn: r}} }
	never := []*pb.Compare{{Key: key, Target: &pb.Compare_Version{Version: 99}}}
	txn := func(r *pb.TxnRequest) *pb.Request { return &pb.Request{Body: &pb.Request_Txn{Txn: r}} }
	grant := func(r *pb.GrantRequest) *pb.Request {
		r.TtlMs = 5000
		return &pb.Request{Body: &pb.Request_Grant{Grant: r}}
	}
	failing := &pb.TxnRequest{Compare: never, Success: []*pb.Op{op(put)}}
	keys := []*pb.Pair{{Key: []byte("a")}, {Key: []byte("b")}}
	ref := &pb.LeaseRef{Id: 7, Token: 1}
	revoke := &pb.RevokeRequest{Leases: []*pb.LeaseRef{ref}}
	change := &pb.ChangeTTLRequest{Lease: ref, TtlMs: 700}
	attach := &pb.AttachRequest{Lease: ref, Keys: [][]byte{key}}
	detach := &pb.DetachRequest{Lease: ref, Keys: [][]byte{key}}
	return map[string]*pb.Request{
		"put":        {Body: &pb.Request_Put{Put: put}},
		"bound put":  {Body: &pb.Request_Put{Put: bound}},
		"bad put":    {Body: &pb.Request_Put{Put: &pb.PutRequest{Key: []byte("x"), IgnoreValue: true}}},
		"delete":     {Body: &pb.Request_DeleteRange{DeleteRange: &pb.DeleteRequest{Key: key}}},
		"failing":    txn(failing),
		"nested":     txn(&pb.TxnRequest{Success: []*pb.Op{inner(failing), drawOp}}),
		"bound txn":  txn(&pb.TxnRequest{Success: []*pb.Op{op(bound), drawOp}}),
		"plain txn":  txn(&pb.TxnRequest{Success: []*pb.Op{op(put), drawOp}}),
		"else":       txn(&pb.TxnRequest{Compare: never, Failure: []*pb.Op{op(put)}}),
		"draw":       txn(&pb.TxnRequest{Success: []*pb.Op{drawOp}}),
		"two draws":  txn(&pb.TxnRequest{Success: []*pb.Op{drawOp, drawOp}}),
		"grant":      grant(&pb.GrantRequest{}),
		"with keys":  grant(&pb.GrantRequest{Keys: keys[:1]}),
		"more keys":  grant(&pb.GrantRequest{Keys: keys}),
		"repeatable": grant(&pb.GrantRequest{RequestId: "r", Name: "n", Keys: keys}),
		"taken":      grant(&pb.GrantRequest{Id: 8, Name: "held"}),
		"revoke":     {Body: &pb.Request_Revoke{Revoke: revoke}},
		"change":     {Body: &pb.Request_ChangeTtl{ChangeTtl: change}},
		"hand over":  {Body: &pb.Request_HandOver{HandOver: &pb.HandOverRequest{Lease: ref}}},
		"resume": {Body: &pb.Request_Resume{Resume: &pb.ResumeRequest{
			Id: 7, Secret: make([]byte, secretBytes),
		}}},
		"attach": {Body: &pb.Request_Attach{Attach: attach}},
		"detach": {Body: &pb.Request_Detach{Detach: detach}},
	}
}

// TestOnceOtherRequest checks that a request that reuses another request's number gets the first
// response if its type fits. Otherwise it gets an error.
func TestOnceOtherRequest(t *testing.T) {
	for one, first := range numbered() {
		for two, second := range numbered() {
			n := newNode()
			s := openSession(t, n, 5)
			onNewStream(t, n, &pb.ClientMessage{Requests: []*pb.Request{
				putRequest(1, 0),
				{Id: 2, Body: &pb.Request_Grant{Grant: &pb.GrantRequest{Id: 7, TtlMs: 5000, Name: "held"}}},
			}})
			first, second := proto.CloneOf(first), proto.CloneOf(second)
			first.Id, second.Id, first.Number, second.Number = 1, 2, 1, 1
			answers := onNewStream(t, n, &pb.ClientMessage{Session: s, Requests: []*pb.Request{first}})
			before := n.View().KV.Revision()
			answers = append(answers,
				onNewStream(t, n, &pb.ClientMessage{Session: s, Requests: []*pb.Request{second}})...)
			if len(answers) != 2 || answers[0].Body == nil || answers[1].Body == nil {
				t.Errorf("%s, then %s: %v", one, two, answers)
			}
			if now := n.View().KV.Revision(); now != before {
				t.Errorf("%s, then %s: the number was done twice", one, two)
			}
		}
	}
}
