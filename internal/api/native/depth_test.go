package native

import (
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
)

// TestTxnTooDeep checks that a transaction nested too deeply for the log is rejected before it is
// proposed. A put with a TTL counts as one more level.
func TestTxnTooDeep(t *testing.T) {
	n := newNode()
	s := unary{&store{leases: service(n, Options{}).leases, node: n}}
	for _, tt := range []struct {
		ttl    int64
		levels int
		ok     bool
	}{{0, 32, true}, {0, 33, false}, {5000, 31, true}, {5000, 32, false}, {0, 120, false}} {
		put := &pb.PutRequest{Key: []byte("k"), TtlMs: tt.ttl}
		r := &pb.TxnRequest{Success: []*pb.Op{{Op: &pb.Op_Put{Put: put}}}}
		for range tt.levels {
			r = &pb.TxnRequest{Success: []*pb.Op{{Op: &pb.Op_Txn{Txn: r}}}}
		}
		before := len(n.commands)
		_, err := s.Txn(t.Context(), r)
		if (err == nil) != tt.ok || len(n.commands)-before != map[bool]int{true: 1}[tt.ok] {
			t.Errorf("%+v: %v, %d commands", tt, err, len(n.commands)-before)
		}
		if err != nil && api.Reason(err) != pb.Reason_REASON_INVALID {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
