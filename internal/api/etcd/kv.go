package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
)

// kvService serves etcdserverpb.KV.
type kvService struct {
	pb.UnsafeKVServer
	identity
	node     Node
	maxOps   int
	maxKeys  int // per lease
	maxBytes int
}

// Range implements pb.KVServer.
func (s *kvService) Range(
	ctx context.Context, r *pb.RangeRequest,
) (*pb.RangeResponse, error) {
	if err := checkRange(r); err != nil {
		return nil, err
	}
	if !r.Serializable {
		if err := s.node.Confirm(ctx); err != nil {
			return nil, api.ReadError(err)
		}
	}
	v := s.node.View()
	if !r.CountOnly && api.ManyKeys(string(r.RangeEnd), r.Limit) {
		keys := v.KV.Visits(string(r.Key), string(r.RangeEnd), rangeOptions(r))
		if err := listen.RoomFor(ctx, keys); err != nil {
			return nil, err
		}
		v = s.node.View()
	}
	if err := readable(ctx, v, string(r.Key), string(r.RangeEnd)); err != nil {
		return nil, err
	}
	res, err := v.KV.Range(string(r.Key), string(r.RangeEnd), rangeOptions(r))
	if err != nil {
		return nil, api.Error(err)
	}
	resp := rangeResponse(r, &res)
	resp.Header = s.headerAt(v, v.KV.Revision())
	return resp, nil
}

// Put implements pb.KVServer.
func (s *kvService) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := checkPut(r); err != nil {
		return nil, err
	}
	if err := s.checkSize(len(r.Key)+len(r.Value), r); err != nil {
		return nil, err
	}
	res, err := propose(ctx, s.node, putCommand(r, s.maxKeys))
	if err != nil {
		return nil, err
	}
	resp := &pb.PutResponse{Header: s.headerAt(s.node.View(), res.Revision)}
	if p := res.Value.(*fsm.PutResult); p.Prev != nil {
		resp.PrevKv = pair(p.Prev)
	}
	return resp, nil
}

// DeleteRange implements pb.KVServer.
func (s *kvService) DeleteRange(
	ctx context.Context, r *pb.DeleteRangeRequest,
) (*pb.DeleteRangeResponse, error) {
	if err := checkDelete(r); err != nil {
		return nil, err
	}
	if err := s.checkSize(len(r.Key)+len(r.RangeEnd), r); err != nil {
		return nil, err
	}
	c := deleteCommand(r)
	if err := s.room(ctx, c); err != nil {
		return nil, err
	}
	res, err := propose(ctx, s.node, c)
	if err != nil {
		return nil, err
	}
	d := res.Value.(*fsm.DeleteResult)
	return &pb.DeleteRangeResponse{
		Header:  s.headerAt(s.node.View(), res.Revision),
		Deleted: d.Deleted,
		PrevKvs: pairs(d.Prev, false),
	}, nil
}

// Txn implements pb.KVServer.
func (s *kvService) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := checkTxn(r, s.maxOps); err != nil {
		return nil, err
	}
	t := txnCommand(r, s.maxKeys)
	if err := api.CheckTxn(t, s.maxOps); err != nil {
		return nil, api.Error(err)
	}
	if n := proto.Size(r); n > s.maxBytes {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	if t.ReadOnly() {
		return s.readTxn(ctx, r, t)
	}
	if err := s.room(ctx, t); err != nil {
		return nil, err
	}
	res, err := propose(ctx, s.node, t)
	if err != nil {
		return nil, err
	}
	resp := txnResponse(r, res.Value.(*fsm.TxnResult), res.Revision)
	resp.Header = s.headerAt(s.node.View(), res.Revision)
	return resp, nil
}

// readTxn executes a read-only transaction on a view.
func (s *kvService) readTxn(
	ctx context.Context, r *pb.TxnRequest, t *fsm.Txn,
) (*pb.TxnResponse, error) {
	if !serializable(r) {
		if err := s.node.Confirm(ctx); err != nil {
			return nil, api.ReadError(err)
		}
	}
	if err := s.room(ctx, t); err != nil {
		return nil, err
	}
	v := s.node.View()
	if err := v.Permit(api.CallerOf(ctx), t); err != nil {
		return nil, api.Error(err)
	}
	res, err := fsm.ReadTxn(t, v.KV)
	if err != nil {
		return nil, api.Error(err)
	}
	rev := v.KV.Revision()
	resp := txnResponse(r, res, rev)
	resp.Header = s.headerAt(v, rev)
	return resp, nil
}

// Compact implements pb.KVServer. It returns when the compaction has been applied. From then on,
// the compacted data cannot be read, so a request for a physical compaction does not have to wait
// any longer.
func (s *kvService) Compact(
	ctx context.Context, r *pb.CompactionRequest,
) (*pb.CompactionResponse, error) {
	res, err := propose(ctx, s.node, &fsm.Compact{Revision: r.Revision})
	if err != nil {
		return nil, err
	}
	return &pb.CompactionResponse{Header: s.headerAt(s.node.View(), res.Revision)}, nil
}

// checkSize rejects requests that would not fit into one log entry. It computes the exact size only
// if the variable-length parts come close to the limit.
func (s *kvService) checkSize(parts int, m proto.Message) error {
	const numbers = 256 // upper bound for the other fields
	if parts+numbers > s.maxBytes && proto.Size(m) > s.maxBytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	return nil
}

// room waits until the client has read enough of the earlier responses. It does nothing unless the
// response may be large.
func (s *kvService) room(ctx context.Context, c fsm.Command) error {
	if !api.MayBeLarge(c) {
		return nil
	}
	return listen.RoomFor(ctx, api.KeysReturned(c, s.node.View().KV))
}

// propose returns the result of a command, or the error to return to the client.
func propose(ctx context.Context, n Node, c fsm.Command) (fsm.Result, error) {
	res, err := n.Propose(ctx, c)
	if err != nil {
		return res, api.ProposalError(err)
	}
	if res.Err != nil {
		return res, api.Error(res.Err)
	}
	return res, nil
}
