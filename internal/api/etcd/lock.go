package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// lockService serves v3lockpb.Lock.
type lockService struct {
	pb.UnsafeLockServer
	queue
}

// Lock implements v3lockpb.LockServer.
func (s *lockService) Lock(ctx context.Context, r *pb.LockRequest) (*pb.LockResponse, error) {
	t, _, err := s.enter(ctx, r.Name, nil, lease.ID(r.Lease))
	if err != nil {
		return nil, err
	}
	h, err := s.head(ctx, t)
	if err != nil {
		return nil, err
	}
	return &pb.LockResponse{Header: h, Key: []byte(t.key)}, nil
}

// Unlock implements v3lockpb.LockServer. The request contains only the key. A delayed request may
// therefore release the lock of a later holder that uses the same lease.
func (s *lockService) Unlock(
	ctx context.Context, r *pb.UnlockRequest,
) (*pb.UnlockResponse, error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	res, err := propose(ctx, s.node, &fsm.DeleteRange{Key: string(r.Key)})
	if err != nil {
		return nil, err
	}
	return &pb.UnlockResponse{Header: s.headerAt(s.node.View(), res.Revision)}, nil
}
