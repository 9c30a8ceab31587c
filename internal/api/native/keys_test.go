package native

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestKeyLimit checks that a lease accepts as many keys as its limit allows, both in its grant and
// later.
func TestKeyLimit(t *testing.T) {
	n := newNode()
	c := serve(t, n, Options{MaxKeys: 2})
	pairs := []*pb.Pair{{Key: []byte("a")}, {Key: []byte("b")}, {Key: []byte("c")}}
	_, err := c.Grant(t.Context(), &pb.GrantRequest{TtlMs: 5000, Keys: pairs})
	if d := api.Detail(err); d.GetReason() != pb.Reason_REASON_TOO_MANY_KEYS {
		t.Errorf("grant: %v", err)
	}
	other, err := c.Grant(t.Context(), &pb.GrantRequest{TtlMs: 5000, Keys: pairs[2:]})
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Grant(t.Context(), &pb.GrantRequest{TtlMs: 5000, Keys: pairs[:2]})
	if err != nil {
		t.Fatal(err)
	}
	r := &pb.AttachRequest{
		Lease: &pb.LeaseRef{Id: l.Lease.Id}, Keys: [][]byte{[]byte("a"), []byte("b")},
	}
	if _, err := c.Attach(t.Context(), r); err != nil {
		t.Errorf("attached again: %v", err)
	}
	r.Keys = [][]byte{[]byte("c")}
	_, err = c.Attach(t.Context(), r)
	if d := api.Detail(err); d.GetReason() != pb.Reason_REASON_TOO_MANY_KEYS {
		t.Errorf("attach: %v", err)
	}
	_, err = c.Detach(t.Context(), &pb.DetachRequest{Keys: [][]byte{[]byte("a")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Attach(t.Context(), r); err != nil {
		t.Errorf("with room again: %v", err)
	}
	d, err := c.Describe(t.Context(), &pb.DescribeRequest{Id: other.Lease.Id})
	if err != nil || d.Lease.KeyCount != 0 {
		t.Errorf("the lease that the key moved from: %v, %v", d, err)
	}
}

// TestPutLimit checks that the limit on a lease's keys is enforced when a put or transaction is
// applied, so that two concurrent requests cannot exceed it together (T14). Existing keys do not
// count twice, and etcd's commands have no limit.
func TestPutLimit(t *testing.T) {
	n := newNode()
	s := unary{&store{leases: service(n, Options{MaxKeys: 2}).leases, node: n}}
	grant(t, s, &pb.GrantRequest{Id: 7, TtlMs: 5000})
	put := func(key string, id int64) *pb.PutRequest {
		return &pb.PutRequest{Key: []byte(key), Lease: id}
	}
	op := func(r *pb.PutRequest) *pb.Op { return &pb.Op{Op: &pb.Op_Put{Put: r}} }
	ask := func(want pb.Reason, r proto.Message) {
		t.Helper()
		var err error
		switch r := r.(type) {
		case *pb.PutRequest:
			_, err = s.Put(t.Context(), r)
		case *pb.TxnRequest:
			_, err = s.Txn(t.Context(), r)
		}
		if api.Reason(err) != want {
			t.Errorf("%v: %v", r, err)
		}
	}
	const tooMany, done = pb.Reason_REASON_TOO_MANY_KEYS, pb.Reason_REASON_UNSPECIFIED
	ask(tooMany, &pb.TxnRequest{Success: []*pb.Op{op(put("a", 7)), op(put("b", 7)), op(put("c", 7))}})
	ask(done, put("a", 7))
	b, err := s.putJob(t.Context(), put("b", 7))
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.putJob(t.Context(), put("c", 7)) // while the lease is still below its limit
	if err != nil {
		t.Fatal(err)
	}
	var full *lease.KeyLimitError
	if res, err := n.Propose(t.Context(), b.command); err != nil || res.Err != nil {
		t.Error(err, res.Err)
	}
	if res, err := n.Propose(t.Context(), c.command); err != nil || !errors.As(res.Err, &full) {
		t.Errorf("the second of two: %v, %v", err, res.Err)
	}
	ask(tooMany, put("c", 7))
	ask(tooMany, &pb.TxnRequest{Success: []*pb.Op{op(put("c", 7))}})
	ask(tooMany, &pb.TxnRequest{Success: []*pb.Op{
		{Op: &pb.Op_Txn{Txn: &pb.TxnRequest{Success: []*pb.Op{op(put("c", 7))}}}},
	}})
	ask(tooMany, &pb.TxnRequest{Success: []*pb.Op{
		{Op: &pb.Op_Grant{Grant: &pb.GrantRequest{Id: 8, TtlMs: 5000}}},
		op(put("d", 8)), op(put("e", 8)), op(put("f", 8)),
	}})
	ask(done, put("a", 7))
	ask(done, &pb.TxnRequest{Success: []*pb.Op{op(put("a", 7)), op(put("b", 7))}})
	ask(done, &pb.PutRequest{Key: []byte("c"), TtlMs: 5000})
	ask(done, put("c", 0))
	ask(done, &pb.PutRequest{Key: []byte("a"), IgnoreLease: true})
	if _, ok := n.machine.Lessor().Lookup(8); ok || n.machine.Lessor().KeyCount(7) != 2 {
		t.Errorf("lease 8 is there: %t; %d keys", ok, n.machine.Lessor().KeyCount(7))
	}
	if res, err := n.Propose(t.Context(), &fsm.Put{Key: "d", Lease: 7}); err != nil || res.Err != nil {
		t.Errorf("a put of etcd's: %v, %v", err, res.Err)
	}
}
