package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/fsm"
)

// identity is the part of response headers that never changes.
type identity struct{ cluster, member uint64 }

// header returns a response header for the view.
func (id identity) header(v *fsm.View) *pb.ResponseHeader {
	return id.headerAt(v, v.KV.Revision())
}

// headerAt returns a response header with a revision that may differ from the view's.
func (id identity) headerAt(v *fsm.View, revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{
		ClusterId: id.cluster,
		MemberId:  id.member,
		Revision:  revision,
		RaftTerm:  v.Term,
	}
}
