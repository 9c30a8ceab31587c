package keys

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"leasehold.dev/internal/cli/app"
)

func showPut(resp *clientv3.PutResponse) app.Answer {
	r := (*pb.PutResponse)(resp)
	return app.Answer{JSON: r, Proto: r, Simple: func(p *app.Page) {
		p.Printf("OK\n")
		if r.GetPrevKv() != nil {
			p.KV(r.GetPrevKv())
		}
	}, Fields: func(p *app.Page) {
		p.Header(r.GetHeader())
		if r.GetPrevKv() != nil {
			p.KVFields("Prev", r.GetPrevKv())
		}
	}}
}

func showDel(resp *clientv3.DeleteResponse) app.Answer {
	r := (*pb.DeleteRangeResponse)(resp)
	return app.Answer{JSON: r, Proto: r, Simple: func(p *app.Page) {
		p.Printf("%d\n", r.GetDeleted())
		for _, kv := range r.GetPrevKvs() {
			p.KV(kv)
		}
	}, Fields: func(p *app.Page) {
		p.Header(r.GetHeader())
		p.Field("Deleted", r.GetDeleted())
		for _, kv := range r.GetPrevKvs() {
			p.KVFields("Prev", kv)
		}
	}}
}

func showTxn(resp *clientv3.TxnResponse) app.Answer {
	r := (*pb.TxnResponse)(resp)
	return app.Answer{JSON: txnForJSON(r), Proto: r, Simple: func(p *app.Page) {
		outcome := "FAILURE"
		if r.GetSucceeded() {
			outcome = "SUCCESS"
		}
		p.Printf("%s\n", outcome)
		for _, op := range r.GetResponses() {
			p.Printf("\n")
			if one, ok := showOp(op); ok {
				one.Simple(p)
			} else {
				p.Printf("unexpected response %+v\n", op)
			}
		}
	}, Fields: func(p *app.Page) {
		p.Header(r.GetHeader())
		p.Field("Succeeded", r.GetSucceeded())
		for _, op := range r.GetResponses() {
			if one, ok := showOp(op); ok {
				one.Fields(p)
			} else {
				p.Quoted("Unknown", fmt.Sprintf("%+v", op.GetResponse()))
			}
		}
	}}
}

// showOp returns the answer for one operation of a transaction.
func showOp(op *pb.ResponseOp) (app.Answer, bool) {
	switch r := op.GetResponse().(type) {
	case *pb.ResponseOp_ResponsePut:
		return showPut((*clientv3.PutResponse)(r.ResponsePut)), true
	case *pb.ResponseOp_ResponseRange:
		return app.ShowGet((*clientv3.GetResponse)(r.ResponseRange)), true
	case *pb.ResponseOp_ResponseDeleteRange:
		return showDel((*clientv3.DeleteResponse)(r.ResponseDeleteRange)), true
	}
	return app.Answer{}, false
}

// These types produce the same JSON for a transaction's response as etcdctl. The generated types
// use other names for oneof fields.
type (
	txnJSON struct {
		Header    *pb.ResponseHeader `json:"header,omitempty"`
		Succeeded bool               `json:"succeeded,omitempty"`
		Responses []opJSON           `json:"responses,omitempty"`
	}
	opJSON struct {
		Response oneOpJSON `json:"Response"`
	}
	oneOpJSON struct {
		Range  *pb.RangeResponse       `json:"response_range,omitempty"`
		Put    *pb.PutResponse         `json:"response_put,omitempty"`
		Delete *pb.DeleteRangeResponse `json:"response_delete_range,omitempty"`
		Txn    *txnJSON                `json:"response_txn,omitempty"`
	}
)

func txnForJSON(r *pb.TxnResponse) *txnJSON {
	t := &txnJSON{Header: r.GetHeader(), Succeeded: r.GetSucceeded()}
	for _, op := range r.GetResponses() {
		one := oneOpJSON{
			Range:  op.GetResponseRange(),
			Put:    op.GetResponsePut(),
			Delete: op.GetResponseDeleteRange(),
		}
		if nested := op.GetResponseTxn(); nested != nil {
			one.Txn = txnForJSON(nested)
		}
		t.Responses = append(t.Responses, opJSON{one})
	}
	return t
}

func showWatch(r *clientv3.WatchResponse) app.Answer {
	wire := &pb.WatchResponse{
		Header:          r.Header,
		CompactRevision: r.CompactRevision,
		Canceled:        r.Canceled,
		Created:         r.Created,
	}
	for _, ev := range r.Events {
		wire.Events = append(wire.Events, (*mvccpb.Event)(ev))
	}
	return app.Answer{JSON: r, Proto: wire, Simple: func(p *app.Page) {
		for _, ev := range wire.GetEvents() {
			p.Printf("%s\n", ev.GetType())
			if ev.GetPrevKv() != nil {
				p.KV(ev.GetPrevKv())
			}
			p.KV(ev.GetKv())
		}
	}, Fields: func(p *app.Page) {
		p.Header(r.Header)
		for _, ev := range wire.GetEvents() {
			p.Field("Type", ev.GetType())
			if ev.GetPrevKv() != nil {
				p.KVFields("Prev", ev.GetPrevKv())
			}
			p.KVFields("", ev.GetKv())
		}
	}}
}
