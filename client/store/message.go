package store

import (
	"strings"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/internal/message"
)

// Fill makes a new message of leasehold.v1 that of the put.
func (p *Put) Fill(m *pb.PutRequest) {
	m.Key, m.Value, m.Lease, m.PrevKv = []byte(p.Key), p.Value, int64(p.Lease), p.PrevKV
	m.IgnoreValue, m.IgnoreLease, m.TtlMs = p.KeepValue, p.KeepLease, message.Ms(p.TTL)
	if p.LeaseName != "" || p.LeaseToken != 0 {
		m.Lease, m.LeaseRef = 0, &pb.LeaseRef{
			Id: int64(p.Lease), Token: uint64(p.LeaseToken), Name: p.LeaseName,
		}
	}
}

// Fill makes a new message of leasehold.v1 that of the deletion.
func (d *Delete) Fill(m *pb.DeleteRequest) {
	m.Key, m.RangeEnd = message.Span(d.Key, d.End)
	m.PrevKv = d.PrevKV
}

// Fill makes a new message of leasehold.v1 that of the range.
func (r *Range) Fill(m *pb.RangeRequest) {
	m.Key, m.RangeEnd = message.Span(r.Key, r.End)
	m.Limit, m.Revision = r.Limit, r.Revision
	m.Serializable, m.KeysOnly, m.CountOnly = r.Serializable, r.KeysOnly, r.CountOnly
}

// Fill makes a new message of leasehold.v1 that of the transaction.
func (t *Txn) Fill(m *pb.TxnRequest) {
	m.Success, m.Failure = opMessages(t.Then), opMessages(t.Else)
	if len(t.If) > 0 {
		m.Compare = make([]*pb.Compare, len(t.If))
	}
	for i, c := range t.If {
		m.Compare[i] = c.Message()
	}
}

func opMessages(list []Op) []*pb.Op {
	if len(list) == 0 {
		return nil
	}
	out := make([]*pb.Op, len(list))
	for i, o := range list {
		out[i] = o.Op()
	}
	return out
}

// piece is an operation in one piece: M is what is done, and B what that is wrapped in.
type piece[B, M any] struct {
	op      pb.Op
	body    B
	message M
}

// Op implements [Op].
func (p Put) Op() *pb.Op {
	x := &piece[pb.Op_Put, pb.PutRequest]{}
	p.Fill(&x.message)
	x.body.Put, x.op.Op = &x.message, &x.body
	return &x.op
}

// Op implements [Op].
func (d Delete) Op() *pb.Op {
	x := &piece[pb.Op_DeleteRange, pb.DeleteRequest]{}
	d.Fill(&x.message)
	x.body.DeleteRange, x.op.Op = &x.message, &x.body
	return &x.op
}

// Op implements [Op].
func (r Range) Op() *pb.Op {
	x := &piece[pb.Op_ReadRange, pb.RangeRequest]{}
	r.Fill(&x.message)
	x.body.ReadRange, x.op.Op = &x.message, &x.body
	return &x.op
}

// Op implements [Op].
func (t Txn) Op() *pb.Op {
	m := &pb.TxnRequest{}
	t.Fill(m)
	return &pb.Op{Op: &pb.Op_Txn{Txn: m}}
}

// Op implements [Op].
func (DrawToken) Op() *pb.Op { return drawToken }

// drawToken is only ever sent, so all may share it.
var drawToken = &pb.Op{Op: &pb.Op_DrawToken{DrawToken: &pb.DrawTokenRequest{}}}

// Message returns the message of leasehold.v1.
func (a Wait) Message() *pb.Wait {
	m := &pb.Wait{Key: []byte(a.Key), Permits: a.Permits, Beside: a.Beside}
	if n := len(a.Prefix); strings.HasPrefix(a.Key, a.Prefix) {
		m.Prefix = m.Key[:n:n]
	} else {
		m.Prefix = []byte(a.Prefix)
	}
	return m
}
