package lease

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// lossyLeases grants leases but loses the first response, and retries the request like clientv3.
type lossyLeases struct {
	etcdserverpb.LeaseClient
	granted map[int64]int64
}

func (l *lossyLeases) LeaseGrant(
	_ context.Context, r *etcdserverpb.LeaseGrantRequest, _ ...grpc.CallOption,
) (resp *etcdserverpb.LeaseGrantResponse, err error) {
	for range 2 {
		id := r.ID
		if id == 0 {
			id = int64(len(l.granted) + 1)
		}
		if _, ok := l.granted[id]; ok {
			resp, err = nil, rpctypes.ErrGRPCLeaseExist
			continue
		}
		l.granted[id] = r.TTL
		resp = &etcdserverpb.LeaseGrantResponse{ID: id, TTL: r.TTL}
	}
	return resp, err
}

func (l *lossyLeases) LeaseTimeToLive(
	_ context.Context, r *etcdserverpb.LeaseTimeToLiveRequest, _ ...grpc.CallOption,
) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
	return &etcdserverpb.LeaseTimeToLiveResponse{ID: r.ID, GrantedTTL: l.granted[r.ID]}, nil
}

// TestGrantOnce checks that a grant whose response is lost is retried but creates only one lease.
func TestGrantOnce(t *testing.T) {
	l := &lossyLeases{granted: make(map[int64]int64)}
	ans, err := grantOnce(t.Context(), l, 60)
	if err != nil {
		t.Fatal(err)
	}
	r := ans.JSON.(*clientv3.LeaseGrantResponse)
	if r.TTL != 60 || len(l.granted) != 1 || l.granted[int64(r.ID)] != 60 {
		t.Errorf("granted %v, the answer is %+v", l.granted, r)
	}
}
