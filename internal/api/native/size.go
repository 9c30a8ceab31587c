package native

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// checkSize rejects a message that does not fit into a log entry. A cheap upper bound nearly always
// suffices. Computing the exact size would take about 5% of a transaction's time.
func (s *store) checkSize(m proto.Message, bound int) error {
	if bound <= s.o.MaxRequestBytes {
		return nil
	}
	if n := proto.Size(m); n > s.o.MaxRequestBytes {
		return invalid("the request is %d bytes long; the limit is %d", n, s.o.MaxRequestBytes)
	}
	return nil
}

// refuse returns the error that replaces a response too large for a message. size is the size of
// that response in bytes. If the request is a write, it has already taken effect.
func (t *stream) refuse(q *request, size int) *pb.Response {
	reason := pb.Reason_REASON_INVALID
	if q.writes {
		reason = pb.Reason_REASON_UNKNOWN_OUTCOME
	}
	if q.wait != nil && t.leave(q.id) {
		t.feeds.Load().waits.drop(q.id)
	}
	r := errorOf(fmt.Errorf("the response is %d bytes long; the limit is %d: "+
		"request fewer keys at a time", size, t.o.maxAnswer), reason)
	r.Id = q.id
	return r
}

// fixedSize is an upper bound on the size of a message without its keys, values and names.
const fixedSize = 128

func putBound(r *pb.PutRequest) int {
	return len(r.GetKey()) + len(r.GetValue()) + len(r.GetLeaseRef().GetName()) + fixedSize
}

// txnBound returns an upper bound on the size of a transaction.
func txnBound(r *pb.TxnRequest) int {
	n := fixedSize
	for _, c := range r.GetCompare() {
		n += len(c.GetKey()) + len(c.GetRangeEnd()) + len(c.GetValue()) +
			len(c.GetNameToken().GetName()) + fixedSize
	}
	for _, op := range r.GetSuccess() {
		n += opBound(op)
	}
	for _, op := range r.GetFailure() {
		n += opBound(op)
	}
	return n
}

func opBound(op *pb.Op) int {
	switch x := op.GetOp().(type) {
	case *pb.Op_Put:
		return putBound(x.Put) + fixedSize
	case *pb.Op_DeleteRange:
		return len(x.DeleteRange.GetKey()) + len(x.DeleteRange.GetRangeEnd()) + fixedSize
	case *pb.Op_ReadRange:
		return len(x.ReadRange.GetKey()) + len(x.ReadRange.GetRangeEnd()) + fixedSize
	case *pb.Op_Txn:
		return txnBound(x.Txn)
	case *pb.Op_Grant:
		return proto.Size(x.Grant) + fixedSize
	default:
		return len(op.GetRenew().GetName()) + len(op.GetRevoke().GetName()) + fixedSize
	}
}
