package native

import (
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
)

func (s *store) checkPut(r *pb.PutRequest) error {
	if err := s.checkInnerPut(r); err != nil {
		return err
	}
	return s.checkSize(r, putBound(r))
}

// checkInnerPut is checkPut for a put in a transaction. It omits the size check, because the size
// of the whole transaction is checked instead.
func (s *store) checkInnerPut(r *pb.PutRequest) error {
	switch {
	case len(r.GetKey()) == 0:
		return invalid("the key is empty")
	case r.IgnoreValue && len(r.Value) > 0:
		return invalid("value and ignore_value must not both be set")
	case r.IgnoreLease && r.Lease != 0:
		return invalid("lease and ignore_lease must not both be set")
	case r.Lease < 0:
		return invalid("lease must be positive, or 0 for none, not %d", r.Lease)
	case r.LeaseRef != nil && (r.IgnoreLease || r.Lease != 0):
		return invalid("lease_ref must not be set together with lease or ignore_lease")
	case r.TtlMs != 0 && (r.IgnoreLease || r.Lease != 0 || r.LeaseRef != nil):
		return invalid("ttl_ms must not be set together with a lease or ignore_lease")
	case r.TtlMs != 0:
		return s.checkTTL(r.TtlMs)
	case r.LeaseRef != nil:
		return checkRef(r.LeaseRef, false)
	}
	return nil
}

const emptyKey = "the key is empty: for all keys, set key and range_end to one zero byte"

func checkDelete(r *pb.DeleteRequest) error {
	if len(r.GetKey()) == 0 {
		return invalid(emptyKey)
	}
	return nil
}

func checkRange(r *pb.RangeRequest) error {
	switch {
	case len(r.GetKey()) == 0:
		return invalid(emptyKey)
	case r.Limit < 0:
		return invalid("limit must not be negative: %d", r.Limit)
	case r.Revision < 0:
		return invalid("revision must not be negative: %d", r.Revision)
	case r.Cache != nil:
		return invalid("a cache can only be filled by a separate read on a stream")
	}
	return nil
}

func (s *store) checkTxn(r *pb.TxnRequest) error {
	if err := s.checkNested(r, s.o.MaxTxnOps); err != nil {
		return err
	}
	return s.checkSize(r, txnBound(r))
}

// checkNested checks a transaction and all transactions nested in it. Its longest list counts
// against the limit. The nested transactions get the rest of the limit.
func (s *store) checkNested(r *pb.TxnRequest, most int) error {
	n := max(len(r.GetCompare()), len(r.GetSuccess()), len(r.GetFailure()))
	if n > most {
		return invalid("the transaction has more than %d conditions or operations", s.o.MaxTxnOps)
	}
	for i, c := range r.GetCompare() {
		if err := checkCompare(c); err != nil {
			return within(err, "compare", i)
		}
	}
	for i, op := range r.GetSuccess() {
		if err := s.checkOp(op, most-n); err != nil {
			return within(err, "success", i)
		}
	}
	for i, op := range r.GetFailure() {
		if err := s.checkOp(op, most-n); err != nil {
			return within(err, "failure", i)
		}
	}
	return nil
}

// within adds the position in a list to an error.
func within(err error, list string, i int) error {
	return invalid("%s[%d]: %s", list, i, status.Convert(err).Message())
}

func checkCompare(c *pb.Compare) error {
	relation, ok := relations[c.GetRelation()]
	if !ok {
		return invalid("relation %d is unknown", c.GetRelation())
	}
	equality := relation == fsm.Equal || relation == fsm.NotEqual
	switch x := c.GetTarget().(type) {
	case nil:
		return invalid("target is not set")
	case *pb.Compare_LeaseAlive, *pb.Compare_NameToken:
		switch {
		case !equality:
			return invalid("a lease can only be compared with RELATION_EQUAL or RELATION_NOT_EQUAL")
		case len(c.Key) > 0 || len(c.RangeEnd) > 0:
			return invalid("key and range_end must be empty where a lease is compared")
		}
		if n, ok := x.(*pb.Compare_NameToken); ok && n.NameToken.GetName() == "" {
			return invalid("the name is empty")
		}
		return nil
	}
	if len(c.GetKey()) == 0 {
		return invalid("the key is empty")
	}
	return nil
}

func (s *store) checkOp(op *pb.Op, most int) error {
	switch x := op.GetOp().(type) {
	case *pb.Op_Put:
		return s.checkInnerPut(x.Put)
	case *pb.Op_DeleteRange:
		return checkDelete(x.DeleteRange)
	case *pb.Op_ReadRange:
		return checkRange(x.ReadRange)
	case *pb.Op_Txn:
		if x.Txn.GetWait() != nil {
			return invalid("a nested transaction cannot wait")
		}
		return s.checkNested(x.Txn, most)
	case *pb.Op_Grant:
		return s.checkInner(x.Grant)
	case *pb.Op_Renew:
		return checkRenewRef(x.Renew)
	case *pb.Op_Revoke:
		return checkRef(x.Revoke, false)
	case *pb.Op_DrawToken:
		return nil
	default:
		return invalid("the operation has an unsupported body")
	}
}

// checkInner checks a grant in a transaction. It requires an ID because other operations use it to
// refer to the lease.
func (s *store) checkInner(r *pb.GrantRequest) error {
	switch {
	case r.GetId() == 0:
		return invalid("a grant in a transaction requires an id")
	case len(r.Keys) > 0:
		return invalid("a grant in a transaction cannot have keys: put them in other operations")
	}
	return s.checkGrant(r)
}
