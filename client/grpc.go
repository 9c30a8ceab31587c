package client

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "leasehold.dev/leaseholdpb"
)

// dialer makes a connection, which need not be there yet.
type dialer func(endpoint, time.Duration) (connection, error)

// dialGRPC is the dialer of New.
func dialGRPC(e endpoint, timeout time.Duration) (connection, error) {
	creds := insecure.NewCredentials()
	if e.tls != nil {
		creds = credentials.NewTLS(e.tls)
	}
	conn, err := grpc.NewClient(e.target,
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.DefaultConfig, MinConnectTimeout: timeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		return nil, err
	}
	return grpcConnection{conn}, nil
}

type grpcConnection struct{ *grpc.ClientConn }

// Open implements connection.
func (c grpcConnection) Open(ctx context.Context) (pb.Stream_OpenClient, error) {
	return pb.NewStreamClient(c.ClientConn).Open(ctx)
}

// Leases implements connection.
func (c grpcConnection) Leases() pb.LeasesClient { return pb.NewLeasesClient(c.ClientConn) }
