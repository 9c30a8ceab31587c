package server

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/listen"
)

// keyCluster is the header where a client of any API can name the cluster that it expects, in
// hexadecimal. The member sends the ID of its cluster in the same header of each stream.
const keyCluster = "leasehold-cluster"

// checkStreamCluster is an intercept.Stream that rejects streams for another cluster.
func (n *node) checkStreamCluster(
	stream grpc.ServerStream, _ *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	cluster := metadata.Pairs(keyCluster, strconv.FormatUint(n.cluster, 16))
	if err := stream.SetHeader(cluster); err != nil {
		return nil, nil, err
	}
	return stream, nil, n.checkCluster(stream.Context())
}

// checkCluster returns an error if a call names another cluster.
func (n *node) checkCluster(ctx context.Context) error {
	texts := listen.Header(ctx, keyCluster)
	if len(texts) == 0 {
		return nil
	}
	want, err := strconv.ParseUint(strings.TrimPrefix(texts[0], "0x"), 16, 64)
	switch {
	case err != nil:
		return status.Errorf(codes.InvalidArgument,
			"leasehold: header %s is %q, which is not a hexadecimal cluster ID",
			keyCluster, texts[0])
	case want != n.cluster:
		return status.Errorf(codes.FailedPrecondition,
			"leasehold: this member belongs to cluster %x, but the client expects cluster %x",
			n.cluster, want)
	}
	return nil
}
