package native

import (
	"cmp"
	"context"
	"crypto/sha256"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// txnConverter converts a transaction that checkTxn has accepted to a command. It also converts the
// result to a response. It records the secrets that it generates.
type txnConverter struct {
	*store
	request    *pb.TxnRequest
	txn        fsm.Txn
	by         string // the caller's name or address
	authorizer authorizer
	secrets    map[*pb.GrantRequest][]byte
	err        error
}

func (c *txnConverter) command(r *pb.TxnRequest) *fsm.Txn {
	t := new(fsm.Txn)
	c.fill(t, r)
	return t
}

func (c *txnConverter) fill(t *fsm.Txn, r *pb.TxnRequest) {
	t.Then, t.Else = c.ops(r.Success), c.ops(r.Failure)
	if len(r.Compare) > 0 {
		t.Compare = make([]fsm.Compare, len(r.Compare))
		for i, x := range r.Compare {
			t.Compare[i] = compareOf(x)
		}
	}
}

var relations = map[pb.Compare_Relation]fsm.Relation{
	pb.Compare_RELATION_UNSPECIFIED: fsm.Equal, pb.Compare_RELATION_EQUAL: fsm.Equal,
	pb.Compare_RELATION_GREATER: fsm.Greater, pb.Compare_RELATION_LESS: fsm.Less,
	pb.Compare_RELATION_NOT_EQUAL: fsm.NotEqual,
}

func compareOf(c *pb.Compare) fsm.Compare {
	out := fsm.Compare{
		Key: string(c.Key), End: string(c.RangeEnd), Relation: relations[c.Relation],
	}
	switch x := c.Target.(type) {
	case *pb.Compare_Version:
		out.Target, out.Number = fsm.TargetVersion, x.Version
	case *pb.Compare_CreateRevision:
		out.Target, out.Number = fsm.TargetCreate, x.CreateRevision
	case *pb.Compare_ModRevision:
		out.Target, out.Number = fsm.TargetMod, x.ModRevision
	case *pb.Compare_Value:
		out.Target, out.Value = fsm.TargetValue, x.Value
	case *pb.Compare_Lease:
		out.Target, out.Number = fsm.TargetLease, x.Lease
	case *pb.Compare_LeaseAlive:
		out.Target, out.Number = fsm.TargetLeaseAlive, x.LeaseAlive
	case *pb.Compare_NameToken:
		out.Target, out.Key = fsm.TargetNameToken, x.NameToken.GetName()
		out.Number = int64(x.NameToken.GetToken())
	}
	return out
}

func (c *txnConverter) ops(list []*pb.Op) []fsm.Op {
	out := make([]fsm.Op, 0, len(list))
	for _, op := range list {
		out = append(out, c.op(op))
	}
	return out
}

func (c *txnConverter) op(op *pb.Op) fsm.Op {
	switch x := op.Op.(type) {
	case *pb.Op_Put:
		if x.Put.TtlMs != 0 {
			return fsm.Op{Txn: c.boundPut(c.authorizer, x.Put)}
		}
		return fsm.Op{Put: c.putCommand(x.Put)}
	case *pb.Op_DeleteRange:
		return fsm.Op{Delete: deleteCommand(x.DeleteRange)}
	case *pb.Op_ReadRange:
		return fsm.Op{Range: &fsm.Range{
			Key: string(x.ReadRange.Key), End: string(x.ReadRange.RangeEnd),
			Options: rangeOptions(x.ReadRange),
		}}
	case *pb.Op_Txn:
		return fsm.Op{Txn: c.command(x.Txn)}
	case *pb.Op_Grant:
		return fsm.Op{Grant: c.grant(x.Grant)}
	case *pb.Op_Renew:
		return fsm.Op{Touch: touchCommand(x.Renew)}
	case *pb.Op_DrawToken:
		return fsm.Op{Draw: true}
	default:
		ref := op.GetRevoke()
		return fsm.Op{Revoke: &fsm.Revoke{
			ID: lease.ID(ref.Id), Name: ref.GetName(), Token: lease.Token(ref.Token),
			By: cmp.Or(c.authorizer.Caller.User, c.by),
		}}
	}
}

func touchCommand(r *pb.LeaseRef) *fsm.Touch {
	return &fsm.Touch{ID: lease.ID(r.Id), Name: r.Name, Token: lease.Token(r.Token)}
}

func (c *txnConverter) grant(r *pb.GrantRequest) *fsm.Grant {
	terms := c.terms(r)
	principal, err := c.authorizer.principal(r.Principal)
	if err != nil && c.err == nil {
		c.err = err
	}
	terms.Principal = principal
	if secret := c.secret(r.Resumable, &terms); secret != nil {
		if c.secrets == nil {
			c.secrets = make(map[*pb.GrantRequest][]byte)
		}
		c.secrets[r] = secret
	}
	return &fsm.Grant{Terms: terms, Holds: rangesOf(r.Holds), Renew: terms.RequestID != ""}
}

// answer implements answerer.
func (c *txnConverter) answer(v *fsm.View, res *fsm.Result) (proto.Message, error) {
	return c.respond(v, res), nil
}

func (c *txnConverter) respond(v *fsm.View, res *fsm.Result) *pb.TxnResponse {
	var out struct {
		message pb.TxnResponse
		header  pb.Header
	}
	c.fillResponse(&out.message, c.request, res.Value.(*fsm.TxnResult))
	c.fillHeader(&out.header, v, res.Revision)
	out.message.Header = &out.header
	return &out.message
}

// rest implements rester. If the request repeats an earlier number, the result is the stored
// outcome of the first attempt. The TTLs of the leases in the response have been running since
// then, so the leases are renewed.
func (c *txnConverter) rest(res *fsm.Result, err error) steps {
	if err != nil || !res.Repeated {
		return nil
	}
	out := c.respond(c.store.node.View(), res)
	list := leasesOf(out)
	if len(list) == 0 {
		return nil
	}
	return func(ctx context.Context) (proto.Message, error) {
		return out, c.renewListed(ctx, list...)
	}
}

// response converts the result of the transaction. It leaves the header unset.
func (c *txnConverter) response(r *pb.TxnRequest, res *fsm.TxnResult) *pb.TxnResponse {
	out := new(pb.TxnResponse)
	c.fillResponse(out, r, res)
	return out
}

func (c *txnConverter) fillResponse(
	out *pb.TxnResponse, r *pb.TxnRequest, res *fsm.TxnResult,
) {
	ops := r.Failure
	if res.Succeeded {
		ops = r.Success
	}
	out.Succeeded = res.Succeeded
	if len(res.Responses) > 0 {
		out.Responses = make([]*pb.OpResponse, len(res.Responses))
		for i, x := range res.Responses {
			out.Responses[i] = c.opResponse(ops[i], x)
		}
	}
}

func (c *txnConverter) opResponse(op *pb.Op, res any) *pb.OpResponse {
	if op.GetPut() != nil {
		res = putResult(res)
	}
	if g := op.GetGrant(); g != nil {
		return &pb.OpResponse{Response: &pb.OpResponse_Grant{Grant: c.grantResponse(g, res)}}
	}
	switch x := res.(type) {
	case *fsm.PutResult:
		return opPutResponse(x)
	case *fsm.DeleteResult:
		return opDeleteResponse(x)
	case *mvcc.RangeResult:
		m := rangeResponse(x, op.GetReadRange().GetKeysOnly())
		return &pb.OpResponse{Response: &pb.OpResponse_ReadRange{ReadRange: m}}
	case *fsm.TxnResult:
		m := c.response(op.GetTxn(), x)
		return &pb.OpResponse{Response: &pb.OpResponse_Txn{Txn: m}}
	case *lease.Info:
		return &pb.OpResponse{Response: &pb.OpResponse_Renew{Renew: fresh(x)}}
	case *fsm.RevokeResult:
		return &pb.OpResponse{Response: &pb.OpResponse_Revoke{Revoke: x.Deleted}}
	case lease.Token:
		return opTokenResponse(x)
	default:
		panic("native: result of unknown type")
	}
}

// opPutResponse makes only one allocation, as do the functions below.
func opPutResponse(res *fsm.PutResult) *pb.OpResponse {
	var out struct {
		op   pb.OpResponse
		body pb.OpResponse_Put
		put  pb.PutResponse
	}
	if res.Prev != nil {
		out.put.PrevKv = pair(res.Prev, false)
	}
	out.body.Put = &out.put
	out.op.Response = &out.body
	return &out.op
}

func opDeleteResponse(res *fsm.DeleteResult) *pb.OpResponse {
	var out struct {
		op     pb.OpResponse
		body   pb.OpResponse_DeleteRange
		delete pb.DeleteResponse
	}
	out.delete.Deleted, out.delete.PrevKvs = res.Deleted, pairs(res.Prev, false)
	out.body.DeleteRange = &out.delete
	out.op.Response = &out.body
	return &out.op
}

func opTokenResponse(t lease.Token) *pb.OpResponse {
	var out struct {
		op   pb.OpResponse
		body pb.OpResponse_DrawToken
	}
	out.body.DrawToken = uint64(t)
	out.op.Response = &out.body
	return &out.op
}

func (c *txnConverter) grantResponse(r *pb.GrantRequest, res any) *pb.GrantResponse {
	info, existed := fsm.GrantResult(res)
	return &pb.GrantResponse{Lease: fresh(info), Existed: existed, Secret: c.secretOf(r, info)}
}

// leasesOf returns the leases that a response reports as granted or renewed.
func leasesOf(r *pb.TxnResponse) (list []*pb.Lease) {
	for _, op := range r.GetResponses() {
		switch x := op.Response.(type) {
		case *pb.OpResponse_Grant:
			list = append(list, x.Grant.Lease)
		case *pb.OpResponse_Renew:
			list = append(list, x.Renew)
		case *pb.OpResponse_Txn:
			list = append(list, leasesOf(x.Txn)...)
		}
	}
	return list
}

// secretOf returns the secret generated for a grant. It returns nil if the lease was granted by an
// earlier request.
func (c *txnConverter) secretOf(r *pb.GrantRequest, made *lease.Info) []byte {
	secret := c.secrets[r]
	if secret == nil || sha256.Sum256(secret) != made.Secret {
		return nil
	}
	return secret
}
