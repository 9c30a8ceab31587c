package cli

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/leases"
)

// etcdLease is a lease that etcd's library keeps alive, which says nothing of how it has ended.
// The token is 0 if any holder of the lease is meant, or the server is none of Leasehold's.
type etcdLease struct {
	client *clientv3.Client
	id     clientv3.LeaseID
	token  uint64
}

// newEtcdLease learns the token by which it can be asked later how the lease has ended.
func (a *app) newEtcdLease(
	ctx context.Context, c *clientv3.Client, id clientv3.LeaseID,
) *etcdLease {
	ctx, cancel := context.WithTimeout(ctx, a.flags.commandTimeout)
	defer cancel()
	r, _ := nativeLeases(c).Describe(ctx, &pb.DescribeRequest{Id: int64(id)})
	return &etcdLease{c, id, r.GetLease().GetToken()}
}

// howEnded says how a lease has ended; empty if it has not, or nobody says so.
func (a *app) howEnded(l *etcdLease) string {
	if l == nil {
		return ""
	}
	ctx, cancel := a.commandContext()
	defer cancel()
	service := nativeLeases(l.client)
	_, err := service.Describe(ctx, &pb.DescribeRequest{Id: int64(l.id)})
	if grpcstatus.Code(err) != codes.NotFound {
		return "" // a renewal, which tells more, would give what is lost another TTL
	}
	r, _ := service.Renew(ctx, &pb.RenewRequest{
		Leases: []*pb.LeaseRef{{Id: int64(l.id), Token: l.token}},
	})
	for _, res := range r.GetResults() {
		if res.Cause != 0 {
			lost := &client.LostError{Cause: leases.Kind(res.Cause), By: res.By}
			return strings.TrimPrefix(lost.Error(), "client: the lease is gone: ")
		}
	}
	return ""
}
