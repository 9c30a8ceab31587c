package native

import (
	"context"
	"errors"
	"fmt"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

func (s *leases) attach(
	ctx context.Context, r *pb.AttachRequest, n number,
) (*pb.AttachResponse, error) {
	if err := checkRef(r.Lease, false); err != nil {
		return nil, err
	}
	if err := checkSomeKeys(r.Keys); err != nil {
		return nil, err
	}
	txn := &fsm.Txn{Then: s.moves(r.Lease, r.Keys, true)}
	h, err := s.move(ctx, n.once(txn), r.Keys, nil)
	if err != nil {
		return nil, err
	}
	return &pb.AttachResponse{Header: h}, nil
}

func (s *leases) detach(
	ctx context.Context, r *pb.DetachRequest, n number,
) (*pb.DetachResponse, error) {
	if err := checkSomeKeys(r.Keys); err != nil {
		return nil, err
	}
	txn := &fsm.Txn{Then: s.moves(r.Lease, r.Keys, false)}
	if r.Lease != nil {
		if err := checkRef(r.Lease, false); err != nil {
			return nil, err
		}
		for _, k := range r.Keys {
			txn.Compare = append(txn.Compare, attached(string(k), r.Lease)...)
		}
	}
	others := fmt.Errorf("%w: not all keys are attached to the lease", fsm.ErrKeyNotFound)
	h, err := s.move(ctx, n.once(txn), r.Keys, others)
	if err != nil {
		return nil, err
	}
	return &pb.DetachResponse{Header: h}, nil
}

// attached returns the conditions that require a key to be attached to a lease.
func attached(key string, to *pb.LeaseRef) (out []fsm.Compare) {
	if to.Id != 0 {
		out = append(out, fsm.Compare{
			Key: key, Target: fsm.TargetLease, Relation: fsm.Equal, Number: to.Id,
		})
	}
	if to.Name != "" {
		out = append(out, fsm.Compare{
			Key: key, Target: fsm.TargetLeaseName, Relation: fsm.Equal, Value: []byte(to.Name),
		})
	}
	return out
}

// moves returns the operations that attach keys to a lease or detach them from it. If the reference
// contains a token, a renewal in the same transaction checks that it is the lease's current one.
// The limit on a lease's keys is checked when the transaction is applied, so that concurrent calls
// cannot jointly exceed it. The limit bounds the work done when a lease ends (T14).
func (s *leases) moves(ref *pb.LeaseRef, keys [][]byte, attach bool) []fsm.Op {
	var ops []fsm.Op
	if ref.GetToken() != 0 {
		ops = append(ops, fsm.Op{Touch: touchCommand(ref)})
	}
	for _, k := range keys {
		put := &fsm.Put{Key: string(k), IgnoreValue: true, MaxKeys: s.o.MaxKeys}
		if attach {
			put.Lease, put.LeaseName = lease.ID(ref.Id), ref.Name
		}
		ops = append(ops, fsm.Op{Put: put})
	}
	return ops
}

// move proposes the transaction. It returns failed if the transaction's condition does not hold. If
// a key is missing, the error names the key.
func (s *leases) move(
	ctx context.Context, c fsm.Command, keys [][]byte, failed error,
) (*pb.Header, error) {
	res, err := s.propose(ctx, c)
	if err == nil && !res.Value.(*fsm.TxnResult).Succeeded {
		err = failed
	}
	v := s.node.View()
	if errors.Is(err, fsm.ErrKeyNotFound) {
		for _, k := range keys {
			if v.KV.Get(string(k)) == nil {
				return nil, fmt.Errorf("%w: %q", fsm.ErrKeyNotFound, k)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return s.header(v, res.Revision), nil
}
