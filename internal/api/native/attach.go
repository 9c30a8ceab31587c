package native

import (
	"context"
	"errors"
	"fmt"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
	pb "leasehold.dev/leaseholdpb"
)

// Attach implements pb.LeasesServer.
func (s *leases) Attach(ctx context.Context, r *pb.AttachRequest) (*pb.AttachResponse, error) {
	if err := checkRef(r.Lease, false); err != nil {
		return nil, err
	}
	if err := checkSomeKeys(r.Keys); err != nil {
		return nil, err
	}
	id := lease.ID(r.Lease.Id)
	if err := s.checkRoom(ctx, id, r.Keys); err != nil {
		return nil, err
	}
	h, err := s.move(ctx, &fsm.Txn{Then: moves(r.Lease, r.Keys, id)}, r.Keys)
	if err != nil {
		return nil, err
	}
	return &pb.AttachResponse{Header: h}, nil
}

// Detach implements pb.LeasesServer.
func (s *leases) Detach(ctx context.Context, r *pb.DetachRequest) (*pb.DetachResponse, error) {
	if err := checkSomeKeys(r.Keys); err != nil {
		return nil, err
	}
	txn := &fsm.Txn{Then: moves(r.Lease, r.Keys, 0)}
	if r.Lease != nil {
		if err := checkRef(r.Lease, false); err != nil {
			return nil, err
		}
		for _, k := range r.Keys {
			txn.Compare = append(txn.Compare, fsm.Compare{
				Key: string(k), Target: fsm.TargetLease, Relation: fsm.Equal, Number: r.Lease.Id,
			})
		}
	}
	h, err := s.move(ctx, txn, r.Keys)
	if err != nil {
		return nil, err
	}
	return &pb.DetachResponse{Header: h}, nil
}

// moves puts keys onto a lease as they are. If the caller says the token that he holds,
// the lease must have it: a renewal in the same transaction sees to that.
func moves(ref *pb.LeaseRef, keys [][]byte, to lease.ID) []fsm.Op {
	var ops []fsm.Op
	if ref.GetToken() != 0 {
		touch := &fsm.Touch{ID: lease.ID(ref.Id), Token: lease.Token(ref.Token)}
		ops = append(ops, fsm.Op{Touch: touch})
	}
	for _, k := range keys {
		put := &fsm.Put{Key: string(k), Lease: to, IgnoreValue: true}
		ops = append(ops, fsm.Op{Put: put})
	}
	return ops
}

// move runs the transaction. If it finds a key missing, the error names the first that is.
func (s *leases) move(ctx context.Context, t *fsm.Txn, keys [][]byte) (*pb.Header, error) {
	res, err := s.propose(ctx, t)
	if err == nil && !res.Value.(*fsm.TxnResult).Succeeded {
		err = fmt.Errorf("%w: not all keys are attached to the lease", fsm.ErrKeyNotFound)
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

// checkRoom refuses keys that are too many for a lease. Two calls at the same time may
// pass it together: the bound keeps the end of a lease from being too much work at once
// (T14), and is no promise.
func (s *leases) checkRoom(ctx context.Context, id lease.ID, keys [][]byte) error {
	count := 0
	err := s.node.Inspect(ctx, func(l *lease.Lessor) {
		count = l.KeyCount(id)
		for _, k := range keys {
			if l.LeaseOf(string(k)) != id {
				count++
			}
		}
	})
	if err == nil && count > s.o.MaxKeys {
		err = &lease.KeyLimitError{ID: id, Limit: s.o.MaxKeys}
	}
	return err
}
