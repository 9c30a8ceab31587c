package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// The commands below share byte slices with the request. This is safe because gRPC decodes every
// request into new memory and nothing modifies it afterwards.

// putCommand converts a put. If the put attaches the key to a lease, it fails if the lease would
// then have more than maxKeys keys.
func putCommand(r *pb.PutRequest, maxKeys int) *fsm.Put {
	c := &fsm.Put{
		Key:         string(r.Key),
		Value:       r.Value,
		Lease:       lease.ID(r.Lease),
		PrevKV:      r.PrevKv,
		IgnoreValue: r.IgnoreValue,
		IgnoreLease: r.IgnoreLease,
	}
	if c.Lease != 0 {
		c.MaxKeys = maxKeys
	}
	return c
}

func deleteCommand(r *pb.DeleteRangeRequest) *fsm.DeleteRange {
	return &fsm.DeleteRange{Key: string(r.Key), End: string(r.RangeEnd), PrevKV: r.PrevKv}
}

// txnCommand converts a transaction that has passed checkTxn.
func txnCommand(r *pb.TxnRequest, maxKeys int) *fsm.Txn {
	t := &fsm.Txn{Then: opCommands(r.Success, maxKeys), Else: opCommands(r.Failure, maxKeys)}
	if len(r.Compare) > 0 {
		t.Compare = make([]fsm.Compare, len(r.Compare))
	}
	for i, c := range r.Compare {
		t.Compare[i] = fsm.Compare{
			Key:      string(c.Key),
			End:      string(c.RangeEnd),
			Target:   fsm.Target(c.Target),
			Relation: fsm.Relation(c.Result),
			Number:   number(c),
		}
		if c.Target == pb.Compare_VALUE {
			t.Compare[i].Value = c.GetValue()
		}
	}
	return t
}

// number returns the operand of a comparison. If the operand's type does not match the target,
// number returns 0.
func number(c *pb.Compare) int64 {
	switch c.Target {
	case pb.Compare_VERSION:
		return c.GetVersion()
	case pb.Compare_CREATE:
		return c.GetCreateRevision()
	case pb.Compare_MOD:
		return c.GetModRevision()
	case pb.Compare_LEASE:
		return c.GetLease()
	default:
		return 0
	}
}

func opCommands(ops []*pb.RequestOp, maxKeys int) []fsm.Op {
	if len(ops) == 0 {
		return nil
	}
	out := make([]fsm.Op, len(ops))
	for i, op := range ops {
		switch r := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			out[i].Put = putCommand(r.RequestPut, maxKeys)
		case *pb.RequestOp_RequestDeleteRange:
			out[i].Delete = deleteCommand(r.RequestDeleteRange)
		case *pb.RequestOp_RequestRange:
			out[i].Range = &fsm.Range{
				Key:     string(r.RequestRange.Key),
				End:     string(r.RequestRange.RangeEnd),
				Options: rangeOptions(r.RequestRange),
			}
		case *pb.RequestOp_RequestTxn:
			out[i].Txn = txnCommand(r.RequestTxn, maxKeys)
		}
	}
	return out
}

func rangeOptions(r *pb.RangeRequest) mvcc.RangeOptions {
	return mvcc.RangeOptions{
		Revision:          r.Revision,
		Limit:             r.Limit,
		MinModRevision:    r.MinModRevision,
		MaxModRevision:    r.MaxModRevision,
		MinCreateRevision: r.MinCreateRevision,
		MaxCreateRevision: r.MaxCreateRevision,
		SortBy:            sortBy(r),
		Descend:           r.SortOrder == pb.RangeRequest_DESCEND,
		CountOnly:         r.CountOnly,
	}
}

// sortBy converts the sort target. The default is to sort by key.
func sortBy(r *pb.RangeRequest) mvcc.SortBy {
	switch r.SortTarget {
	case pb.RangeRequest_VERSION:
		return mvcc.ByVersion
	case pb.RangeRequest_CREATE:
		return mvcc.ByCreate
	case pb.RangeRequest_MOD:
		return mvcc.ByMod
	case pb.RangeRequest_VALUE:
		return mvcc.ByValue
	default:
		return mvcc.ByKey
	}
}

// rangeResponse converts the result of a range, except for the header.
func rangeResponse(r *pb.RangeRequest, res *mvcc.RangeResult) *pb.RangeResponse {
	return &pb.RangeResponse{
		Kvs:   pairs(res.KVs, r.KeysOnly),
		More:  res.More,
		Count: res.Count,
	}
}

// serializable reports whether a transaction may be answered without a confirm round. This is never
// the case for a transaction without operations, because its result still depends on its
// comparisons.
func serializable(r *pb.TxnRequest) bool {
	n := 0
	for _, ops := range [...][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			g := op.GetRequestRange()
			if g == nil || !g.Serializable {
				return false
			}
			n++
		}
	}
	return n > 0
}

// txnResponse converts the result of a transaction, except for the header. revision is the revision
// of the store after the transaction.
func txnResponse(r *pb.TxnRequest, res *fsm.TxnResult, revision int64) *pb.TxnResponse {
	c := converter{final: revision, before: revision}
	if changed(res) {
		c.before--
	}
	return c.txn(r, res)
}

// changed reports whether a transaction changed anything. If so, it has its own revision.
func changed(res *fsm.TxnResult) bool {
	for _, x := range res.Responses {
		switch x := x.(type) {
		case *fsm.PutResult:
			return true
		case *fsm.DeleteResult:
			if x.Deleted > 0 {
				return true
			}
		case *fsm.TxnResult:
			if changed(x) {
				return true
			}
		}
	}
	return false
}

// converter walks a transaction in execution order, because the header of each response contains
// the revision as of that operation.
type converter struct {
	before, final int64
	wrote         bool
}

func (c *converter) header() *pb.ResponseHeader {
	if c.wrote {
		return &pb.ResponseHeader{Revision: c.final}
	}
	return &pb.ResponseHeader{Revision: c.before}
}

func (c *converter) txn(r *pb.TxnRequest, res *fsm.TxnResult) *pb.TxnResponse {
	ops := r.Failure
	if res.Succeeded {
		ops = r.Success
	}
	out := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: res.Succeeded}
	if len(res.Responses) > 0 {
		out.Responses = make([]*pb.ResponseOp, len(res.Responses))
	}
	for i, x := range res.Responses {
		out.Responses[i] = c.op(ops[i], x)
	}
	return out
}

func (c *converter) op(r *pb.RequestOp, res any) *pb.ResponseOp {
	switch x := res.(type) {
	case *fsm.PutResult:
		c.wrote = true
		p := &pb.PutResponse{Header: c.header()}
		if x.Prev != nil {
			p.PrevKv = pair(x.Prev)
		}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: p}}
	case *fsm.DeleteResult:
		c.wrote = c.wrote || x.Deleted > 0
		d := &pb.DeleteRangeResponse{
			Header: c.header(), Deleted: x.Deleted, PrevKvs: pairs(x.Prev, false),
		}
		return &pb.ResponseOp{
			Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: d},
		}
	case *mvcc.RangeResult:
		g := rangeResponse(r.GetRequestRange(), x)
		g.Header = c.header()
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: g}}
	case *fsm.TxnResult:
		t := c.txn(r.GetRequestTxn(), x)
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: t}}
	default:
		panic("etcd: result of unknown type")
	}
}

// pair converts a key-value pair.
func pair(kv *mvcc.KeyValue) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{
		Key:            []byte(kv.Key),
		CreateRevision: kv.CreateRevision,
		ModRevision:    kv.ModRevision,
		Version:        kv.Version,
		Value:          kv.Value,
		Lease:          kv.Lease,
	}
}

// pairs converts any number of key-value pairs in three allocations.
func pairs(kvs []*mvcc.KeyValue, keysOnly bool) []*mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	size := 0
	for _, kv := range kvs {
		size += len(kv.Key)
	}
	keys := make([]byte, 0, size)
	slab := make([]mvccpb.KeyValue, len(kvs))
	out := make([]*mvccpb.KeyValue, len(kvs))
	for i, kv := range kvs {
		start := len(keys)
		keys = append(keys, kv.Key...)
		p := &slab[i]
		p.Key = keys[start:len(keys):len(keys)]
		p.CreateRevision, p.ModRevision = kv.CreateRevision, kv.ModRevision
		p.Version, p.Lease = kv.Version, kv.Lease
		if !keysOnly {
			p.Value = kv.Value
		}
		out[i] = p
	}
	return out
}
