package native

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// store implements the operations of StoreService. It embeds the operations of LeaseService.
type store struct {
	pb.UnsafeStoreServiceServer
	*leases
	node Node
}

func (s *store) putJob(ctx context.Context, r *pb.PutRequest) (job, error) {
	if err := s.checkPut(r); err != nil {
		return job{}, err
	}
	if r.TtlMs != 0 {
		return job{command: s.boundPut(s.authorizer(ctx), r), answer: putting{s}}, nil
	}
	return job{command: s.putCommand(r), answer: putting{s}}, nil
}

// putting is the answerer for puts.
type putting struct{ *store }

func (s putting) answer(v *fsm.View, res *fsm.Result) (proto.Message, error) {
	out := new(putReply)
	s.fill(out, v, res)
	return &out.message, nil
}

// putReply combines all parts of the response to a put in one allocation.
type putReply struct {
	response pb.Response
	body     pb.Response_Put
	message  pb.PutResponse
	header   pb.Header
}

func (s putting) fill(out *putReply, v *fsm.View, res *fsm.Result) {
	s.fillHeader(&out.header, v, res.Revision)
	out.message.Header = &out.header
	if prev := putResult(res.Value).Prev; prev != nil {
		out.message.PrevKv = pair(prev, false)
	}
	out.body.Put = &out.message
	out.response.Body = &out.body
}

func (s *store) deleteJob(r *pb.DeleteRequest) (job, error) {
	if err := checkDelete(r); err != nil {
		return job{}, err
	}
	return job{command: deleteCommand(r), answer: deleting{s}}, nil
}

// deleting is the answerer for deletes.
type deleting struct{ *store }

func (s deleting) answer(v *fsm.View, res *fsm.Result) (proto.Message, error) {
	out := deleteResponse(res.Value.(*fsm.DeleteResult))
	out.Header = s.header(v, res.Revision)
	return out, nil
}

func (s *store) rangeJob(r *pb.RangeRequest) (job, error) {
	if err := checkRange(r); err != nil {
		return job{}, err
	}
	read := func(v *fsm.View, _ *fsm.Result) (proto.Message, error) {
		res, err := v.KV.Range(string(r.Key), string(r.RangeEnd), rangeOptions(r))
		if err != nil {
			return nil, err
		}
		out := rangeResponse(&res, r.KeysOnly)
		out.Header = s.header(v, v.KV.Revision())
		return out, nil
	}
	permit := func(a authorizer) error {
		return a.checkRead(keyrange.Range{Key: string(r.Key), End: string(r.RangeEnd)})
	}
	return job{confirm: !r.Serializable, permit: permit, answer: answer(read)}, nil
}

// txnJob returns the job of a transaction. by is the caller's name or address.
func (s *store) txnJob(ctx context.Context, r *pb.TxnRequest, by string) (job, error) {
	if err := s.checkTxn(r); err != nil {
		return job{}, err
	}
	c := &txnConverter{store: s, request: r, by: by, authorizer: s.authorizer(ctx)}
	txn := &c.txn
	c.fill(txn, r)
	if c.err != nil {
		return job{}, c.err
	}
	if err := api.CheckTxn(txn, s.o.MaxTxnOps); err != nil {
		return job{}, err
	}
	if txn.ReadOnly() {
		read := func(v *fsm.View, _ *fsm.Result) (proto.Message, error) {
			res, err := fsm.ReadTxn(txn, v.KV)
			if err != nil {
				return nil, err
			}
			out := c.response(r, res)
			out.Header = s.header(v, v.KV.Revision())
			return out, nil
		}
		permit := func(a authorizer) error { return (&fsm.View{Access: a.State}).Permit(a.Caller, txn) }
		return job{confirm: true, permit: permit, answer: answer(read)}, nil
	}
	return job{command: txn, answer: c, rest: c}, nil
}

func (s *store) watch(r *pb.WatchRequest, out grpc.ServerStreamingServer[pb.WatchResponse]) error {
	w := newWatches(s)
	defer w.hub.Close()
	g := newGuard(out.Context(), s.node)
	changed := s.node.AccessChanged()
	if err := g.Enter(0, watchNeeds(r)); err != nil {
		return err
	}
	if err := w.begin(0, r); err != nil {
		return err
	}
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		for resp := w.next(); resp != nil; resp = w.next() {
			if e := resp.GetError(); e != nil {
				return api.MessageError(e)
			}
			if err := g.ReviewOne(); err != nil {
				return err
			}
			if err := out.Send(resp.GetWatch()); err != nil {
				return err
			}
		}
		select {
		case <-w.hub.Ready():
		case now := <-look.C:
			w.tick(now)
			if at, ok := w.nextLook(now); ok {
				look.Reset(at.Sub(now))
			}
		case <-changed:
			changed = s.node.AccessChanged()
			if err := g.ReviewOne(); err != nil {
				return err
			}
		case <-out.Context().Done():
			return context.Cause(out.Context())
		case <-s.o.Stop:
			return api.ErrStopped
		}
	}
}

// putCommand returns the command for a put. The limit on the keys of a lease is checked when the
// command is applied (see moves).
func (s *leases) putCommand(r *pb.PutRequest) *fsm.Put {
	c := &fsm.Put{
		Key: string(r.Key), Value: r.Value, Lease: lease.ID(r.Lease), PrevKV: r.PrevKv,
		IgnoreValue: r.IgnoreValue, IgnoreLease: r.IgnoreLease,
	}
	if ref := r.LeaseRef; ref != nil {
		c.Lease, c.LeaseName, c.LeaseToken = lease.ID(ref.Id), ref.Name, lease.Token(ref.Token)
	}
	if c.Lease != 0 || c.LeaseName != "" {
		c.MaxKeys = s.o.MaxKeys
	}
	return c
}

// boundPut returns the command for a put with a TTL. The command grants a lease and binds it to the
// key.
func (s *leases) boundPut(a authorizer, r *pb.PutRequest) *fsm.Txn {
	terms := lease.Terms{TTL: lease.TTL(r.TtlMs), Bound: true}
	terms.Principal, _ = a.principal("")
	terms.ID = chooseID(&terms, 0)
	put := s.putCommand(r)
	put.Lease = terms.ID
	return &fsm.Txn{Then: []fsm.Op{{Grant: &fsm.Grant{Terms: terms}}, {Put: put}}}
}

// putResult extracts the result of a command created by putCommand or boundPut.
func putResult(value any) *fsm.PutResult {
	if txn, ok := value.(*fsm.TxnResult); ok {
		value = txn.Responses[1]
	}
	return value.(*fsm.PutResult)
}

func deleteCommand(r *pb.DeleteRequest) *fsm.DeleteRange {
	return &fsm.DeleteRange{Key: string(r.Key), End: string(r.RangeEnd), PrevKV: r.PrevKv}
}

func rangeOptions(r *pb.RangeRequest) mvcc.RangeOptions {
	return mvcc.RangeOptions{Revision: r.Revision, Limit: r.Limit, CountOnly: r.CountOnly}
}

func deleteResponse(res *fsm.DeleteResult) *pb.DeleteResponse {
	return &pb.DeleteResponse{Deleted: res.Deleted, PrevKvs: pairs(res.Prev, false)}
}

func rangeResponse(res *mvcc.RangeResult, keysOnly bool) *pb.RangeResponse {
	return &pb.RangeResponse{
		Kvs: pairs(res.KVs, keysOnly), More: res.More, Count: res.Count,
	}
}

func pairs(kvs []*mvcc.KeyValue, keysOnly bool) []*pb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	out := make([]*pb.KeyValue, len(kvs))
	for i, kv := range kvs {
		out[i] = pair(kv, keysOnly)
	}
	return out
}

// pair converts a key-value pair. The result shares the value, so it must not be modified.
func pair(kv *mvcc.KeyValue, keysOnly bool) *pb.KeyValue {
	out := &pb.KeyValue{
		Key: []byte(kv.Key), Value: kv.Value, Lease: kv.Lease, Version: kv.Version,
		CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
	}
	if keysOnly {
		out.Value = nil
	}
	return out
}
