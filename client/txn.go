package client

import (
	"context"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/lease"
)

// Txn does one of two lists of operations, all of it in one revision or nothing. It is
// an [Op], too.
type Txn struct {
	// If are the conditions. If all hold, Then is done, otherwise Else.
	If         []Compare
	Then, Else []Op
}

// Op is an operation of a transaction: a [Put], [Delete], [Range], [Txn], [Grant] or
// [DrawToken], or a pointer to one; or what [LeaseRef.Renew] or [LeaseRef.Revoke] returns.
type Op interface{ op() *pb.Op }

// Renew is the operation that starts the lease's TTL anew when the transaction is applied. The
// client does not count on it: it renews the leases that it keeps alive itself. A reference
// without an ID needs a Token: otherwise a holder could renew the lease of its successor, and take
// that for its own.
func (r LeaseRef) Renew() Op { return renewOp(r) }

// Revoke is the operation that ends the lease, with its keys. The program must not rely on the
// lease any more: it calls [Lease.Close] first if this client keeps the lease alive.
func (r LeaseRef) Revoke() Op { return revokeOp(r) }

type (
	renewOp  LeaseRef
	revokeOp LeaseRef
)

// DrawToken draws the next fencing token, of the same sequence as the tokens of leases: it is
// larger than all that were given out before, never given out again, also after a restore
// from a backup, and no lease has it. Nothing else changes, not even the revision.
type DrawToken struct{}

// TxnResult is what a Txn did.
type TxnResult struct {
	// Revision is that of the store, with the transaction.
	Revision int64
	// Succeeded says that the conditions held.
	Succeeded bool
	// Results has one for each operation that was done, in their order.
	Results []Result
}

// Result is what one operation of a transaction did: the one field that belongs to it is
// set.
type Result struct {
	Put    *PutResult
	Delete *DeleteResult
	Range  *RangeResult
	Txn    *TxnResult
	// Grant is a lease that nobody keeps alive yet: see [Client.Keep]. A transaction does
	// not tell what remains of a lease that a request ID found again, so one that was asked
	// for with a request ID cannot be kept.
	Grant *Granted
	Renew *LeaseInfo
	// Revoked is how many keys went with a lease.
	Revoked int64
	// Token is the one that was drawn.
	Token lease.Token
}

// Txn does a transaction. One that only reads is repeated like any read.
func (c *Client) Txn(ctx context.Context, t Txn) (TxnResult, error) {
	return c.txn(ctx, spec{op: "txn", kind: read}, t)
}

// txn does a transaction; to be a read it must be one.
func (c *Client) txn(ctx context.Context, s spec, t Txn) (TxnResult, error) {
	a := &ask[pb.Request_Txn, pb.TxnRequest]{spec: s}
	t.write(&a.message)
	a.body.Txn, a.request.Body = &a.message, &a.body
	if a.kind == read && !reads(&a.message) {
		a.kind = numbered
	}
	sent := c.sending(&a.message)
	r, err := c.do(ctx, &a.spec, &a.request)
	out := txnResult(r.GetTxn(), sent)
	c.endings.followAll(out.Results)
	return out, err
}

// sending returns the moment before a transaction is sent, if anything counts from it: before
// every try, as the answer may be to the first.
func (c *Client) sending(m *pb.TxnRequest) moment {
	if !grants(m) {
		return moment{}
	}
	return c.clock.moment()
}

// grants reports whether a transaction may grant a lease.
func grants(m *pb.TxnRequest) bool {
	for _, list := range [...][]*pb.Op{m.Success, m.Failure} {
		for _, o := range list {
			switch x := o.Op.(type) {
			case *pb.Op_Grant:
				return true
			case *pb.Op_Txn:
				if grants(x.Txn) {
					return true
				}
			}
		}
	}
	return false
}

// reads reports whether a transaction changes nothing.
func reads(m *pb.TxnRequest) bool {
	for _, list := range [...][]*pb.Op{m.Success, m.Failure} {
		for _, o := range list {
			switch x := o.Op.(type) {
			case *pb.Op_ReadRange:
			case *pb.Op_Txn:
				if !reads(x.Txn) {
					return false
				}
			default:
				return false
			}
		}
	}
	return true
}

func (t Txn) message() *pb.TxnRequest {
	m := &pb.TxnRequest{}
	t.write(m)
	return m
}

// write makes a new message that of the transaction.
func (t *Txn) write(m *pb.TxnRequest) {
	m.Success, m.Failure = opMessages(t.Then), opMessages(t.Else)
	if len(t.If) > 0 {
		m.Compare = make([]*pb.Compare, len(t.If))
	}
	for i, c := range t.If {
		m.Compare[i] = c.message()
	}
}

func opMessages(list []Op) []*pb.Op {
	if len(list) == 0 {
		return nil
	}
	out := make([]*pb.Op, len(list))
	for i, o := range list {
		out[i] = o.op()
	}
	return out
}

// piece is an operation in one piece: M is what is done, and B what that is wrapped in.
type piece[B, M any] struct {
	op      pb.Op
	body    B
	message M
}

func (p Put) op() *pb.Op {
	x := &piece[pb.Op_Put, pb.PutRequest]{}
	p.write(&x.message)
	x.body.Put, x.op.Op = &x.message, &x.body
	return &x.op
}

func (d Delete) op() *pb.Op {
	x := &piece[pb.Op_DeleteRange, pb.DeleteRequest]{}
	d.write(&x.message)
	x.body.DeleteRange, x.op.Op = &x.message, &x.body
	return &x.op
}

func (r Range) op() *pb.Op {
	x := &piece[pb.Op_ReadRange, pb.RangeRequest]{}
	r.write(&x.message)
	x.body.ReadRange, x.op.Op = &x.message, &x.body
	return &x.op
}

func (t Txn) op() *pb.Op { return &pb.Op{Op: &pb.Op_Txn{Txn: t.message()}} }

func (g Grant) op() *pb.Op { return &pb.Op{Op: &pb.Op_Grant{Grant: g.message()}} }

func (r renewOp) op() *pb.Op { return &pb.Op{Op: &pb.Op_Renew{Renew: LeaseRef(r).message()}} }

func (r revokeOp) op() *pb.Op { return &pb.Op{Op: &pb.Op_Revoke{Revoke: LeaseRef(r).message()}} }

func (DrawToken) op() *pb.Op { return drawToken }

// drawToken is only ever sent, so all may share it.
var drawToken = &pb.Op{Op: &pb.Op_DrawToken{DrawToken: &pb.DrawTokenRequest{}}}

// txnResult converts what a transaction did that was sent after a moment.
func txnResult(m *pb.TxnResponse, sent moment) TxnResult {
	out := TxnResult{Revision: m.GetHeader().GetRevision(), Succeeded: m.GetSucceeded()}
	if n := len(m.GetResponses()); n > 0 {
		out.Results = make([]Result, n)
	}
	for i := range out.Results {
		out.Results[i] = resultOf(m.Responses[i], sent)
	}
	return out
}

// resultOf goes by what is answered: what was asked may have been given in many a form.
func resultOf(m *pb.OpResponse, sent moment) (out Result) {
	switch x := m.Response.(type) {
	case *pb.OpResponse_Put:
		p := putResult(x.Put)
		out.Put = &p
	case *pb.OpResponse_DeleteRange:
		d := deleteResult(x.DeleteRange)
		out.Delete = &d
	case *pb.OpResponse_ReadRange:
		g := rangeResult(x.ReadRange)
		out.Range = &g
	case *pb.OpResponse_Txn:
		t := txnResult(x.Txn, sent)
		out.Txn = &t
	case *pb.OpResponse_Grant:
		out.Grant = grantedOf(x.Grant, sent)
	case *pb.OpResponse_Renew:
		i := infoOf(x.Renew)
		out.Renew = &i
	case *pb.OpResponse_Revoke:
		out.Revoked = x.Revoke
	case *pb.OpResponse_DrawToken:
		out.Token = lease.Token(x.DrawToken)
	}
	return out
}
