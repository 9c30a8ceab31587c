package native

import (
	"math"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/lease"
)

// TestPutTTL checks that a put with a TTL creates a lease bound to the key, even in a transaction.
// A second put replaces the first lease.
func TestPutTTL(t *testing.T) {
	n := newNode()
	s := unary{&store{leases: service(n, Options{}).leases, node: n}}
	put := &pb.PutRequest{Key: []byte("k"), Value: []byte("v"), TtlMs: 5000, PrevKv: true}
	var last lease.ID
	for i, do := range []func() (*pb.PutResponse, error){
		func() (*pb.PutResponse, error) { return s.Put(t.Context(), put) },
		func() (*pb.PutResponse, error) {
			r, err := s.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.Op{
				{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: []byte("x")}}},
				{Op: &pb.Op_Txn{Txn: &pb.TxnRequest{Success: []*pb.Op{{Op: &pb.Op_Put{Put: put}}}}}},
			}})
			if err != nil {
				return nil, err
			}
			return r.Responses[1].GetTxn().Responses[0].GetPut(), nil
		},
		func() (*pb.PutResponse, error) {
			r := onNewStream(t, n, &pb.ClientMessage{Requests: []*pb.Request{{
				Id: 1, Body: &pb.Request_Put{Put: put},
			}}})
			return r[0].GetPut(), nil
		},
	} {
		r, err := do()
		if err != nil || (r.GetPrevKv() != nil) != (i > 0) {
			t.Fatalf("%d: %v, %v", i, r, err)
		}
		id := n.machine.Lessor().LeaseOf("k")
		l, err := s.Describe(t.Context(), &pb.DescribeRequest{Id: int64(id)})
		if err != nil || !l.Lease.Bound || l.Lease.TtlMs != 5000 || l.Lease.KeyCount != 1 {
			t.Errorf("%d: lease %v, %v", i, l, err)
		}
		if id == last || n.machine.Lessor().Len() != 1 {
			t.Errorf("%d: %d leases, the key is on %d", i, n.machine.Lessor().Len(), id)
		}
		last = id
	}
	_, err := s.Attach(t.Context(), &pb.AttachRequest{
		Lease: &pb.LeaseRef{Id: int64(last)}, Keys: [][]byte{[]byte("x")},
	})
	if r := api.Reason(err); r != pb.Reason_REASON_INVALID {
		t.Errorf("another key: %v", err)
	}
	_, err = s.Detach(t.Context(), &pb.DetachRequest{Keys: [][]byte{[]byte("k")}})
	if err != nil || n.machine.Lessor().Len() != 0 || n.machine.View().KV.Get("k") == nil {
		t.Errorf("detached: %v, %d leases", err, n.machine.Lessor().Len())
	}
}

// TestPutTTLRefused checks that the TTL has the same limits as in a grant (T24), and that
// contradictory requests are rejected.
func TestPutTTLRefused(t *testing.T) {
	n := newNode()
	s := unary{&store{leases: service(n, Options{}).leases, node: n}}
	for _, r := range []*pb.PutRequest{
		{TtlMs: -1},
		{TtlMs: 1},
		{TtlMs: math.MinInt64},
		{TtlMs: math.MaxInt64},
		{TtlMs: int64(maxTTL) + 1},
		{TtlMs: 5000, Lease: 1},
		{TtlMs: 5000, IgnoreLease: true},
	} {
		r.Key = []byte("k")
		_, err := s.Put(t.Context(), r)
		_, inTxn := s.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.Op{{Op: &pb.Op_Put{Put: r}}}})
		for _, err := range []error{err, inTxn} {
			if api.Reason(err) != pb.Reason_REASON_INVALID {
				t.Errorf("%v: %v", r, err)
			}
		}
	}
	if len(n.commands) != 0 {
		t.Errorf("%d commands", len(n.commands))
	}
}
