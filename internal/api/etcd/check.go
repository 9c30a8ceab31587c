package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errCompare rejects a comparison that is not part of the API.
var errCompare = status.Error(codes.InvalidArgument, "etcdserver: invalid compare in txn request")

func checkRange(r *pb.RangeRequest) error {
	if len(r.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	if r.SortOrder < pb.RangeRequest_NONE || r.SortOrder > pb.RangeRequest_DESCEND ||
		r.SortTarget < pb.RangeRequest_KEY || r.SortTarget > pb.RangeRequest_VALUE {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

func checkPut(r *pb.PutRequest) error {
	switch {
	case len(r.GetKey()) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) != 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	default:
		return nil
	}
}

func checkDelete(r *pb.DeleteRangeRequest) error {
	if len(r.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

// checkTxn checks a transaction and all transactions nested in it. The longest of its three lists
// counts against maxOps, and the rest of maxOps is the limit for the nested transactions.
func checkTxn(r *pb.TxnRequest, maxOps int) error {
	n := max(len(r.GetCompare()), len(r.GetSuccess()), len(r.GetFailure()))
	if n > maxOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.GetCompare() {
		if err := checkCompare(c); err != nil {
			return err
		}
	}
	for _, ops := range [...][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range ops {
			if err := checkOp(op, maxOps-n); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkCompare(c *pb.Compare) error {
	if len(c.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	if c.Target < pb.Compare_VERSION || c.Target > pb.Compare_LEASE ||
		c.Result < pb.Compare_EQUAL || c.Result > pb.Compare_NOT_EQUAL {
		return errCompare
	}
	return nil
}

func checkOp(op *pb.RequestOp, maxOps int) error {
	switch r := op.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		return checkRange(r.RequestRange)
	case *pb.RequestOp_RequestPut:
		return checkPut(r.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return checkDelete(r.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return checkTxn(r.RequestTxn, maxOps)
	default: // an empty operation; etcd returns this error
		return rpctypes.ErrGRPCKeyNotFound
	}
}
