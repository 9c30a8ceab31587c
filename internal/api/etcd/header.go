package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/fsm"
)

// identity is the part of every response's header that never changes.
type identity struct{ cluster, member uint64 }

// header returns the header of a response as of view.
func (id identity) header(v *fsm.View) *pb.ResponseHeader {
	return id.headerAt(v, v.KV.Revision())
}

// headerAt returns the header of a response whose revision is not the view's.
func (id identity) headerAt(v *fsm.View, revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{
		ClusterId: id.cluster,
		MemberId:  id.member,
		Revision:  revision,
		RaftTerm:  v.Term,
	}
}
