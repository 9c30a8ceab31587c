package native

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
)

// TestSizeBound checks that the estimated size of a request is an upper bound and close to the
// actual size.
func TestSizeBound(t *testing.T) {
	long := bytes.Repeat([]byte("k"), 300)
	put := &pb.PutRequest{Key: long, Value: long, Lease: -1, PrevKv: true, TtlMs: -1}
	named := &pb.LeaseRef{Id: -1, Token: 1 << 63, Name: string(long)}
	put.LeaseRef = named
	compare := []*pb.Compare{
		{
			Relation: pb.Compare_RELATION_NOT_EQUAL, Key: long, RangeEnd: long,
			Target: &pb.Compare_Value{Value: long},
		},
		{Relation: -1, Key: long, Target: &pb.Compare_ModRevision{ModRevision: -1}},
		{Target: &pb.Compare_NameToken{NameToken: &pb.NameToken{Name: string(long), Token: 1 << 63}}},
	}
	ops := []*pb.Op{
		{Op: &pb.Op_Put{Put: put}},
		{Op: &pb.Op_DeleteRange{DeleteRange: &pb.DeleteRequest{Key: long, RangeEnd: long, PrevKv: true}}},
		{Op: &pb.Op_ReadRange{ReadRange: &pb.RangeRequest{
			Key: long, RangeEnd: long, Limit: -1, Revision: -1, Serializable: true, KeysOnly: true,
			CountOnly: true, Cache: &pb.LeaseRef{Id: -1, Token: 1 << 63},
		}}},
		{Op: &pb.Op_Grant{Grant: &pb.GrantRequest{Name: string(long), Owner: string(long)}}},
		{Op: &pb.Op_Renew{Renew: named}},
		{Op: &pb.Op_Revoke{Revoke: named}},
		{},
	}
	inner := &pb.TxnRequest{Compare: compare, Success: ops, Failure: ops}
	ops = append(ops, &pb.Op{Op: &pb.Op_Txn{Txn: inner}})
	txns := []*pb.TxnRequest{{}, inner, {Compare: compare, Success: ops, Failure: ops}}
	for _, c := range compare {
		txns = append(txns, &pb.TxnRequest{Compare: []*pb.Compare{c}})
	}
	for _, op := range ops {
		txns = append(txns, &pb.TxnRequest{Success: []*pb.Op{op}})
	}
	if n, bound := proto.Size(put), putBound(put); bound < n {
		t.Errorf("put of %d bytes: %d", n, bound)
	}
	for _, r := range txns {
		messages := 1 + 2*(len(r.Compare)+len(r.Success)+len(r.Failure)+len(inner.Success)*2)
		if n, bound := proto.Size(r), txnBound(r); bound < n || bound > n+messages*fixedSize {
			t.Errorf("%v: %d bytes, estimated %d", r, n, bound)
		}
	}
}

// TestAnswerTooLong checks that a response too long for any message is replaced by an error, and
// that the stream goes on serving its other requests. If the command took effect, the error does
// not claim otherwise.
func TestAnswerTooLong(t *testing.T) {
	onLine(t, func(b *bench) {
		const n = maxTestAnswer/maxFragment + 1
		for i := range n {
			b.node.put(&fsm.Put{Key: fmt.Sprint("k", i), Value: make([]byte, maxFragment)})
		}
		from, to := []byte("k"), []byte("l")
		b.send(&pb.Request{Id: 1, Body: &pb.Request_ReadRange{
			ReadRange: &pb.RangeRequest{Key: from, RangeEnd: to, Serializable: true},
		}})
		b.wantError(1, pb.Reason_REASON_INVALID)
		b.send(&pb.Request{Id: 2, Body: &pb.Request_ReadRange{
			ReadRange: &pb.RangeRequest{Key: from, RangeEnd: to, Limit: n - 2, Serializable: true},
		}})
		if r := b.only(); len(r.GetReadRange().GetKvs()) != n-2 {
			t.Errorf("%d keys", len(r.GetReadRange().GetKvs()))
		}
		r := enterRequest(3, "l/1", 1)
		r.GetTxn().Success = append(r.GetTxn().Success, &pb.Op{Op: &pb.Op_ReadRange{
			ReadRange: &pb.RangeRequest{Key: from, RangeEnd: to},
		}})
		b.send(r)
		b.answer()
		b.wantError(3, pb.Reason_REASON_UNKNOWN_OUTCOME)
		if s := b.node.queues.Stats(); s.Waiting != 0 {
			t.Errorf("%d wait", s.Waiting)
		}
		b.send(&pb.Request{Id: 4, Body: &pb.Request_DeleteRange{
			DeleteRange: &pb.DeleteRequest{Key: from, RangeEnd: to, PrevKv: true},
		}})
		b.answer()
		b.wantError(4, pb.Reason_REASON_UNKNOWN_OUTCOME)
	})
}

// TestWatchOfLongPairs checks that the previous values of keys count toward the size of a watch's
// response as well.
func TestWatchOfLongPairs(t *testing.T) {
	onLine(t, func(b *bench) {
		const n = 5
		for i := range n {
			b.apply(&fsm.Put{Key: fmt.Sprint("k", i), Value: make([]byte, maxFragment)})
		}
		b.send(&pb.Request{Id: 1, Body: &pb.Request_Watch{Watch: &pb.WatchRequest{
			Key: []byte("k"), RangeEnd: []byte("l"), PrevKv: true,
		}}})
		b.node.hub.Distribute()
		b.got()
		b.apply(&fsm.DeleteRange{Key: "k", End: "l"})
		b.node.hub.Distribute()
		events := 0
		for _, r := range b.all() {
			if size := proto.Size(r); size > 2*maxFragment {
				t.Errorf("response of %d bytes", size)
			}
			events += len(r.GetWatch().GetEvents())
			if r.GetWatch().GetFragment() != (events < n) {
				t.Errorf("%d events, %v", events, r.GetWatch().GetFragment())
			}
		}
		if events != n {
			t.Errorf("%d events", events)
		}
	})
}
