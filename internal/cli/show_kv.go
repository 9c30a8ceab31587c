package cli

import (
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// kv writes a key and its value, a line each.
func (p *page) kv(kv *mvccpb.KeyValue) {
	k, v := string(kv.GetKey()), string(kv.GetValue())
	if p.hex {
		k, v = hexBytes(k), hexBytes(v)
	}
	if !p.valueOnly {
		p.printf("%s\n", k)
	}
	p.printf("%s\n", v)
}

// hexBytes writes every byte of s as \xNN.
func hexBytes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\x%02x`, s[i])
	}
	return b.String()
}

// header writes the fields of a response's header.
func (p *page) header(h *pb.ResponseHeader) {
	p.memberID("ClusterID", h.GetClusterId())
	p.memberID("MemberID", h.GetMemberId())
	// Only the key-value calls fill the revision in.
	if h.GetRevision() > 0 {
		p.field("Revision", h.GetRevision())
	}
	p.field("RaftTerm", h.GetRaftTerm())
}

// kvFields writes the fields of a key; prefix is "Prev" for the value before.
func (p *page) kvFields(prefix string, kv *mvccpb.KeyValue) {
	p.quoted(prefix+"Key", string(kv.GetKey()))
	p.field(prefix+"CreateRevision", kv.GetCreateRevision())
	p.field(prefix+"ModRevision", kv.GetModRevision())
	p.field(prefix+"Version", kv.GetVersion())
	p.quoted(prefix+"Value", string(kv.GetValue()))
	p.leaseID(prefix+"Lease", kv.GetLease())
}

func showPut(resp *clientv3.PutResponse) answer {
	r := (*pb.PutResponse)(resp)
	return answer{json: r, proto: r, simple: func(p *page) {
		p.printf("OK\n")
		if r.GetPrevKv() != nil {
			p.kv(r.GetPrevKv())
		}
	}, fields: func(p *page) {
		p.header(r.GetHeader())
		if r.GetPrevKv() != nil {
			p.kvFields("Prev", r.GetPrevKv())
		}
	}}
}

func showGet(resp *clientv3.GetResponse) answer {
	r := (*pb.RangeResponse)(resp)
	return answer{json: r, proto: r, simple: func(p *page) {
		for _, kv := range r.GetKvs() {
			p.kv(kv)
		}
	}, fields: func(p *page) {
		p.header(r.GetHeader())
		for _, kv := range r.GetKvs() {
			p.kvFields("", kv)
		}
		p.field("More", r.GetMore())
		p.field("Count", r.GetCount())
	}}
}

func showDel(resp *clientv3.DeleteResponse) answer {
	r := (*pb.DeleteRangeResponse)(resp)
	return answer{json: r, proto: r, simple: func(p *page) {
		p.printf("%d\n", r.GetDeleted())
		for _, kv := range r.GetPrevKvs() {
			p.kv(kv)
		}
	}, fields: func(p *page) {
		p.header(r.GetHeader())
		p.field("Deleted", r.GetDeleted())
		for _, kv := range r.GetPrevKvs() {
			p.kvFields("Prev", kv)
		}
	}}
}

func showTxn(resp *clientv3.TxnResponse) answer {
	r := (*pb.TxnResponse)(resp)
	return answer{json: txnForJSON(r), proto: r, simple: func(p *page) {
		outcome := "FAILURE"
		if r.GetSucceeded() {
			outcome = "SUCCESS"
		}
		p.printf("%s\n", outcome)
		for _, op := range r.GetResponses() {
			p.printf("\n")
			if one, ok := showOp(op); ok {
				one.simple(p)
			} else {
				p.printf("unexpected response %+v\n", op)
			}
		}
	}, fields: func(p *page) {
		p.header(r.GetHeader())
		p.field("Succeeded", r.GetSucceeded())
		for _, op := range r.GetResponses() {
			if one, ok := showOp(op); ok {
				one.fields(p)
			} else {
				p.quoted("Unknown", fmt.Sprintf("%+v", op.GetResponse()))
			}
		}
	}}
}

// showOp shows the response to one operation of a transaction.
func showOp(op *pb.ResponseOp) (answer, bool) {
	switch r := op.GetResponse().(type) {
	case *pb.ResponseOp_ResponsePut:
		return showPut((*clientv3.PutResponse)(r.ResponsePut)), true
	case *pb.ResponseOp_ResponseRange:
		return showGet((*clientv3.GetResponse)(r.ResponseRange)), true
	case *pb.ResponseOp_ResponseDeleteRange:
		return showDel((*clientv3.DeleteResponse)(r.ResponseDeleteRange)), true
	}
	return answer{}, false
}

// The types below give a transaction's response the JSON that etcdctl has
// always printed: the generated type would name the one-of's fields otherwise.
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

func showWatch(r *clientv3.WatchResponse) answer {
	wire := &pb.WatchResponse{
		Header:          r.Header,
		CompactRevision: r.CompactRevision,
		Canceled:        r.Canceled,
		Created:         r.Created,
	}
	for _, ev := range r.Events {
		wire.Events = append(wire.Events, (*mvccpb.Event)(ev))
	}
	return answer{json: r, proto: wire, simple: func(p *page) {
		for _, ev := range wire.GetEvents() {
			p.printf("%s\n", ev.GetType())
			if ev.GetPrevKv() != nil {
				p.kv(ev.GetPrevKv())
			}
			p.kv(ev.GetKv())
		}
	}, fields: func(p *page) {
		p.header(r.Header)
		for _, ev := range wire.GetEvents() {
			p.field("Type", ev.GetType())
			if ev.GetPrevKv() != nil {
				p.kvFields("Prev", ev.GetPrevKv())
			}
			p.kvFields("", ev.GetKv())
		}
	}}
}
