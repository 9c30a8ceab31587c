package app

import (
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	native "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
)

// EtcdAnswer returns the Answer for an etcd API response.
func EtcdAnswer(m proto.Message, simple func(*Page)) Answer {
	return Answer{JSON: m, Proto: m, Simple: simple}
}

// withHeader is a response that contains only a header.
type withHeader interface {
	proto.Message
	GetHeader() *pb.ResponseHeader
}

// ShowLine prints a line of text for a response that contains only a header.
func ShowLine(r withHeader, format string, args ...any) Answer {
	ans := EtcdAnswer(r, func(p *Page) { p.Printf(format+"\n", args...) })
	ans.Fields = func(p *Page) { p.Header(r.GetHeader()) }
	return ans
}

// KV prints a key and its value on separate lines.
func (p *Page) KV(kv *mvccpb.KeyValue) {
	k, v := string(kv.GetKey()), string(kv.GetValue())
	if p.hex {
		k, v = hexBytes(k), hexBytes(v)
	}
	if !p.valueOnly {
		p.Printf("%s\n", k)
	}
	p.Printf("%s\n", v)
}

// hexBytes formats every byte of s as \xNN.
func hexBytes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\x%02x`, s[i])
	}
	return b.String()
}

// Header prints the fields of a response header.
func (p *Page) Header(h *pb.ResponseHeader) {
	p.MemberID("ClusterID", h.GetClusterId())
	p.MemberID("MemberID", h.GetMemberId())
	// Only calls that involve keys set the revision.
	if h.GetRevision() > 0 {
		p.Field("Revision", h.GetRevision())
	}
	p.Field("RaftTerm", h.GetRaftTerm())
}

// KVFields prints the fields of a key. The prefix is "Prev" for the previous value.
func (p *Page) KVFields(prefix string, kv *mvccpb.KeyValue) {
	p.Quoted(prefix+"Key", string(kv.GetKey()))
	p.Field(prefix+"CreateRevision", kv.GetCreateRevision())
	p.Field(prefix+"ModRevision", kv.GetModRevision())
	p.Field(prefix+"Version", kv.GetVersion())
	p.Quoted(prefix+"Value", string(kv.GetValue()))
	p.LeaseID(prefix+"Lease", kv.GetLease())
}

// ShowGet prints keys as the get command does.
func ShowGet(resp *clientv3.GetResponse) Answer {
	r := (*pb.RangeResponse)(resp)
	return Answer{JSON: r, Proto: r, Simple: func(p *Page) {
		for _, kv := range r.GetKvs() {
			p.KV(kv)
		}
	}, Fields: func(p *Page) {
		p.Header(r.GetHeader())
		for _, kv := range r.GetKvs() {
			p.KVFields("", kv)
		}
		p.Field("More", r.GetMore())
		p.Field("Count", r.GetCount())
	}}
}

// NativeKV converts a key to leasehold.v1.
func NativeKV(kv *store.KV) *native.KeyValue {
	if kv == nil {
		return nil
	}
	return &native.KeyValue{
		Key: []byte(kv.Key), Value: kv.Value, CreateRevision: kv.CreateRevision,
		ModRevision: kv.ModRevision, Version: kv.Version, Lease: int64(kv.Lease),
	}
}

// EtcdKV converts a key to the etcd API's type.
func EtcdKV(kv *native.KeyValue) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{
		Key: kv.Key, Value: kv.Value, Lease: kv.Lease, Version: kv.Version,
		CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
	}
}

// IsSerializable parses the --consistency flag.
func IsSerializable(consistency string) (bool, error) {
	switch consistency {
	case "s":
		return true, nil
	case "l":
		return false, nil
	}
	return false, BadFeature("unknown consistency flag %q", consistency)
}
