package app

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// clusterID is the value of --cluster-id. It is 0 if the flag is not set.
type clusterID uint64

// String implements pflag.Value.
func (c *clusterID) String() string {
	if *c == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(*c), 16)
}

// Set implements pflag.Value.
func (c *clusterID) Set(text string) error {
	id, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil || id == 0 {
		return errors.New("must be a cluster ID in hexadecimal, as printed by " +
			"leasehold init and in members' logs")
	}
	*c = clusterID(id)
	return nil
}

// Type implements pflag.Value.
func (c *clusterID) Type() string { return "hex" }

// options make an etcd API client send the expected cluster ID with each request. Leasehold members
// reject requests for a different cluster.
func (c clusterID) options() []grpc.DialOption {
	if c == 0 {
		return nil
	}
	with := func(ctx context.Context) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "leasehold-cluster", c.String())
	}
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			next grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			return next(with(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(
			ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			next grpc.Streamer, opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			return next(with(ctx), desc, cc, method, opts...)
		}),
	}
}
