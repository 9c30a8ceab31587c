package client

import (
	"strings"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/internal/message"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
)

// Operation implements [store.Op].
func (Grant) Operation() {}

func fillPut(m *pb.PutRequest, p *store.Put) {
	m.Key, m.Value, m.Lease, m.PrevKv = []byte(p.Key), p.Value, int64(p.Lease), p.PrevKV
	m.IgnoreValue, m.IgnoreLease, m.TtlMs = p.KeepValue, p.KeepLease, message.Ms(p.TTL)
	if p.LeaseName != "" || p.LeaseToken != 0 {
		m.Lease, m.LeaseRef = 0, message.Ref(p.Lease, p.LeaseToken, p.LeaseName)
	}
}

func fillDelete(m *pb.DeleteRequest, d *store.Delete) {
	m.Key, m.RangeEnd = message.Span(d.Key, d.End)
	m.PrevKv = d.PrevKV
}

func fillRange(m *pb.RangeRequest, r *store.Range) {
	m.Key, m.RangeEnd = message.Span(r.Key, r.End)
	m.Limit, m.Revision = r.Limit, r.Revision
	m.Serializable, m.KeysOnly, m.CountOnly = r.Serializable, r.KeysOnly, r.CountOnly
}

func fillTxn(m *pb.TxnRequest, t *store.Txn) {
	m.Success, m.Failure = opMessages(t.Then), opMessages(t.Else)
	if len(t.If) > 0 {
		m.Compare = make([]*pb.Compare, len(t.If))
	}
	for i, c := range t.If {
		if m.Compare[i] = c.Message; m.Compare[i] == nil {
			m.Compare[i] = &pb.Compare{} // members reject it
		}
	}
}

func opMessages(list []store.Op) []*pb.Op {
	if len(list) == 0 {
		return nil
	}
	out := make([]*pb.Op, len(list))
	for i, o := range list {
		out[i] = opMessage(o)
	}
	return out
}

// piece holds an operation, its body and the body's message in a single allocation.
type piece[B, M any] struct {
	op      pb.Op
	body    B
	message M
}

// opMessage converts an operation. An operation of unknown type gets no body, and members reject
// it.
func opMessage(o store.Op) *pb.Op {
	switch o := o.(type) {
	case store.Put:
		return putMessage(&o)
	case *store.Put:
		return putMessage(o)
	case store.Delete:
		return deleteMessage(&o)
	case *store.Delete:
		return deleteMessage(o)
	case store.Range:
		return rangeMessage(&o)
	case *store.Range:
		return rangeMessage(o)
	case store.Txn:
		return txnMessage(&o)
	case *store.Txn:
		return txnMessage(o)
	case store.DrawToken, *store.DrawToken:
		return drawToken
	case Grant:
		return &pb.Op{Op: &pb.Op_Grant{Grant: o.message()}}
	case *Grant:
		return &pb.Op{Op: &pb.Op_Grant{Grant: o.message()}}
	case message.Renew:
		return &pb.Op{Op: &pb.Op_Renew{Renew: o.LeaseRef}}
	case message.Revoke:
		return &pb.Op{Op: &pb.Op_Revoke{Revoke: o.LeaseRef}}
	default:
		return &pb.Op{}
	}
}

func putMessage(p *store.Put) *pb.Op {
	x := &piece[pb.Op_Put, pb.PutRequest]{}
	fillPut(&x.message, p)
	x.body.Put, x.op.Op = &x.message, &x.body
	return &x.op
}

func deleteMessage(d *store.Delete) *pb.Op {
	x := &piece[pb.Op_DeleteRange, pb.DeleteRequest]{}
	fillDelete(&x.message, d)
	x.body.DeleteRange, x.op.Op = &x.message, &x.body
	return &x.op
}

func rangeMessage(r *store.Range) *pb.Op {
	x := &piece[pb.Op_ReadRange, pb.RangeRequest]{}
	fillRange(&x.message, r)
	x.body.ReadRange, x.op.Op = &x.message, &x.body
	return &x.op
}

func txnMessage(t *store.Txn) *pb.Op {
	m := &pb.TxnRequest{}
	fillTxn(m, t)
	return &pb.Op{Op: &pb.Op_Txn{Txn: m}}
}

// drawToken is immutable and therefore shared.
var drawToken = &pb.Op{Op: &pb.Op_DrawToken{DrawToken: &pb.DrawTokenRequest{}}}

func waitMessage(a store.Wait) *pb.Wait {
	m := &pb.Wait{Key: []byte(a.Key), Permits: a.Permits, IgnoredValue: a.IgnoredValue}
	if n := len(a.Prefix); strings.HasPrefix(a.Key, a.Prefix) {
		m.Prefix = m.Key[:n:n]
	} else {
		m.Prefix = []byte(a.Prefix)
	}
	return m
}

func refMessage(r leases.Ref) *pb.LeaseRef { return message.Ref(r.ID, r.Token, r.Name) }
