package e2e

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// grantWithID grants a lease with an ID chosen by the caller.
func grantWithID(ctx context.Context, c *clientv3.Client, id clientv3.LeaseID) error {
	_, err := pb.NewLeaseClient(c.ActiveConnection()).LeaseGrant(ctx,
		&pb.LeaseGrantRequest{ID: int64(id), TTL: crashTTL})
	return clientv3.ContextError(ctx, err)
}
