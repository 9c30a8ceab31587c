package native

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/leaseholdpb"
)

// TestSizeBound: the bound of a request is never below its size, and not far above.
func TestSizeBound(t *testing.T) {
	long := bytes.Repeat([]byte("k"), 300)
	put := &pb.PutRequest{Key: long, Value: long, Lease: -1, PrevKv: true, TtlMs: -1}
	compare := []*pb.Compare{
		{
			Relation: pb.Compare_NOT_EQUAL, Key: long, RangeEnd: long,
			Target: &pb.Compare_Value{Value: long},
		},
		{Relation: -1, Key: long, Target: &pb.Compare_ModRevision{ModRevision: -1}},
		{Target: &pb.Compare_NameToken{NameToken: &pb.NameToken{Name: string(long), Token: 1 << 63}}},
	}
	ops := []*pb.Op{
		{Op: &pb.Op_Put{Put: put}},
		{Op: &pb.Op_Delete{Delete: &pb.DeleteRequest{Key: long, RangeEnd: long, PrevKv: true}}},
		{Op: &pb.Op_Range{Range: &pb.RangeRequest{
			Key: long, RangeEnd: long, Limit: -1, Revision: -1, Serializable: true, KeysOnly: true,
			CountOnly: true, Cache: &pb.LeaseRef{Id: -1, Token: 1 << 63},
		}}},
		{Op: &pb.Op_Grant{Grant: &pb.GrantRequest{Name: string(long), Owner: string(long)}}},
		{Op: &pb.Op_Renew{Renew: &pb.LeaseRef{Id: -1, Token: 1 << 63}}},
		{Op: &pb.Op_Revoke{Revoke: &pb.LeaseRef{Id: -1, Token: 1 << 63}}},
		{},
	}
	inner := &pb.TxnRequest{Compare: compare, Then: ops, Else: ops}
	ops = append(ops, &pb.Op{Op: &pb.Op_Txn{Txn: inner}})
	txns := []*pb.TxnRequest{{}, inner, {Compare: compare, Then: ops, Else: ops}}
	for _, c := range compare {
		txns = append(txns, &pb.TxnRequest{Compare: []*pb.Compare{c}})
	}
	for _, op := range ops {
		txns = append(txns, &pb.TxnRequest{Then: []*pb.Op{op}})
	}
	if n, bound := proto.Size(put), putBound(put); bound < n {
		t.Errorf("a put of %d bytes: %d", n, bound)
	}
	for _, r := range txns {
		messages := 1 + 2*(len(r.Compare)+len(r.Then)+len(r.Else)+len(inner.Then)*2)
		if n, bound := proto.Size(r), txnBound(r); bound < n || bound > n+messages*fixedSize {
			t.Errorf("%v: %d bytes, and the bound is %d", r, n, bound)
		}
	}
}
