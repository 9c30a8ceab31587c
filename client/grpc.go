package client

import (
	"context"
	"math"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/wire"
)

// dialer makes a connection, which need not be there yet.
type dialer func(endpoint, *Config) (connection, error)

// inFlight is how many bytes a member may send before this client has taken them in. A size
// that is given also keeps gRPC from measuring how much fits: it sends a ping for nearly every
// message of a quiet stream, and so doubles the packets.
const inFlight = 1 << 20

// dialGRPC is the dialer of New.
func dialGRPC(e endpoint, c *Config) (connection, error) {
	creds := insecure.NewCredentials()
	if e.tls != nil {
		creds = credentials.NewTLS(e.tls)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.DefaultConfig, MinConnectTimeout: c.DialTimeout,
		}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.ForceCodecV2(wire.Codec()),
		),
		grpc.WithDisableServiceConfig(),
		grpc.WithInitialWindowSize(inFlight),
		grpc.WithInitialConnWindowSize(inFlight),
	}
	if c.Dial != nil {
		options = append(options, grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return c.Dial(ctx, e.text) }))
	}
	conn, err := grpc.NewClient(e.target, options...)
	if err != nil {
		return nil, err
	}
	return grpcConnection{conn, c.pin, c.who}, nil
}

type grpcConnection struct {
	*grpc.ClientConn
	pin *pin
	who *logins
}

// Open implements connection.
func (c grpcConnection) Open(ctx context.Context) (pb.StreamService_OpenClient, error) {
	ctx, token, err := c.who.context(ctx, c.ClientConn)
	if err != nil {
		return nil, err
	}
	s, err := pb.NewStreamServiceClient(c.ClientConn).Open(c.pin.context(ctx))
	if err != nil {
		return nil, err
	}
	return &known{&pinned{StreamService_OpenClient: s, pin: c.pin}, c.who, token}, nil
}
