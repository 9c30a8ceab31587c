package etcd

import (
	"bytes"
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
	pb "leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// etcd uses the same error strings, with the code Unknown.
var (
	errNotLeader = status.Error(codes.Unknown, "election: not leader")
	errNoLeader  = status.Error(codes.Unknown, "election: no leader")
	errNoKey     = status.Error(codes.Unknown, `"leader" field must be provided`)
)

// electionService serves v3electionpb.Election.
type electionService struct {
	pb.UnsafeElectionServer
	queue
}

// Campaign implements v3electionpb.ElectionServer.
func (s *electionService) Campaign(
	ctx context.Context, r *pb.CampaignRequest,
) (*pb.CampaignResponse, error) {
	t, old, err := s.enter(ctx, r.Name, r.Value, lease.ID(r.Lease))
	if err != nil {
		return nil, err
	}
	leader := &pb.LeaderKey{
		Name: r.Name, Key: []byte(t.key), Rev: t.revision, Lease: int64(t.lease),
	}
	if old != nil && !bytes.Equal(old.Value, r.Value) {
		if _, err := s.proclaim(ctx, leader, r.Value); err != nil {
			return nil, err
		}
	}
	h, err := s.head(ctx, t)
	if err != nil {
		return nil, err
	}
	return &pb.CampaignResponse{Header: h, Leader: leader}, nil
}

// Proclaim implements v3electionpb.ElectionServer.
func (s *electionService) Proclaim(
	ctx context.Context, r *pb.ProclaimRequest,
) (*pb.ProclaimResponse, error) {
	switch {
	case r.Leader == nil:
		return nil, errNoKey
	case len(r.Leader.Key) == 0:
		return nil, rpctypes.ErrGRPCEmptyKey
	case r.Leader.Rev <= 0:
		return nil, errNotLeader // the error for a write, not for a missing key
	}
	h, err := s.proclaim(ctx, r.Leader, r.Value)
	if err != nil {
		return nil, err
	}
	return &pb.ProclaimResponse{Header: h}, nil
}

// proclaim writes a value if the key has not been replaced since the candidate entered the queue.
func (s *electionService) proclaim(
	ctx context.Context, l *pb.LeaderKey, value []byte,
) (*etcdserverpb.ResponseHeader, error) {
	res, err := propose(ctx, s.node, &fsm.Txn{
		Compare: []fsm.Compare{{Key: string(l.Key), Target: fsm.TargetCreate, Number: l.Rev}},
		Then: []fsm.Op{{Put: &fsm.Put{
			Key: string(l.Key), Value: value, Lease: lease.ID(l.Lease),
			// The key stays attached to its lease, regardless of what the caller passes.
			IgnoreLease: l.Lease == 0,
		}}},
	})
	if err != nil {
		return nil, err
	}
	if !res.Value.(*fsm.TxnResult).Succeeded {
		return nil, errNotLeader
	}
	return s.headerAt(s.node.View(), res.Revision), nil
}

// Leader implements v3electionpb.ElectionServer.
func (s *electionService) Leader(
	ctx context.Context, r *pb.LeaderRequest,
) (*pb.LeaderResponse, error) {
	if err := s.node.Confirm(ctx); err != nil {
		return nil, api.ReadError(err)
	}
	v := s.node.View()
	prefix := queuePrefix(r.Name)
	if err := readable(ctx, v, prefix, prefixEnd(prefix)); err != nil {
		return nil, err
	}
	var first *mvcc.KeyValue
	for kv := range v.KV.Ascend(prefix, prefixEnd(prefix), 0) {
		if first == nil || older(kv, first) {
			first = kv
		}
	}
	if first == nil {
		return nil, errNoLeader
	}
	return &pb.LeaderResponse{Header: s.header(v), Kv: pair(first)}, nil
}

// Resign implements v3electionpb.ElectionServer.
func (s *electionService) Resign(
	ctx context.Context, r *pb.ResignRequest,
) (*pb.ResignResponse, error) {
	switch {
	case r.Leader == nil:
		return nil, errNoKey
	case len(r.Leader.Key) == 0:
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	t := ticket{key: string(r.Leader.Key), revision: r.Leader.Rev}
	if t.revision <= 0 {
		// A candidate never leads with revision 0 or below, so there is nothing to resign.
		return &pb.ResignResponse{Header: s.header(s.node.View())}, nil
	}
	res, err := propose(ctx, s.node, t.removal())
	if err != nil {
		return nil, err
	}
	return &pb.ResignResponse{Header: s.headerAt(s.node.View(), res.Revision)}, nil
}
