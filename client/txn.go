package client

import (
	"context"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// TxnResult is the result of a transaction.
type TxnResult struct {
	// Revision is the store's revision after the transaction.
	Revision int64
	// Succeeded reports whether the conditions held.
	Succeeded bool
	// Results contains one result for each executed operation, in order.
	Results []Result
}

// Result is the result of one operation in a transaction. Only the field of that operation is set.
type Result struct {
	Put    *store.PutResult
	Delete *store.DeleteResult
	Range  *store.RangeResult
	Txn    *TxnResult
	// Grant is a lease that no client keeps alive yet. See [Client.Keep]. Keep rejects a lease
	// granted with a request ID: it may be an older lease, and a transaction does not return its
	// remaining time.
	Grant *Granted
	Renew *leases.Info
	// Revoked is the number of keys that were deleted with the lease.
	Revoked int64
	// Token is the token that was drawn.
	Token lease.Token
}

// Txn applies a transaction. A transaction that only reads is retried like any other read.
func (c *Client) Txn(ctx context.Context, t store.Txn) (TxnResult, error) {
	return c.txn(ctx, spec{op: "txn", kind: read}, t)
}

// txn applies a transaction, and treats it as a read if it changes nothing.
func (c *Client) txn(ctx context.Context, s spec, t store.Txn) (TxnResult, error) {
	a := &ask[pb.Request_Txn, pb.TxnRequest]{spec: s}
	fillTxn(&a.message, &t)
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

// sending returns the moment before the first attempt to send a transaction that can grant a lease.
// It has to be before the first attempt, because that may be the one that granted the lease.
func (c *Client) sending(m *pb.TxnRequest) moment {
	if !grants(m) {
		return moment{}
	}
	return c.clock.moment()
}

// grants reports whether a transaction can grant a lease.
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

// txnResult converts the result of a transaction. sent is a time before the transaction was sent.
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

// resultOf switches on the type of the response, because some operations have more than one form of
// request.
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
