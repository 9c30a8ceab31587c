package client

import (
	"context"
	"errors"
	"math"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/wire"
)

// dialer creates a connection. The connection may be established later.
type dialer func(endpoint, *settings) (connection, error)

// inFlight is the number of bytes that a member can send before this client has read them. Setting
// a fixed window keeps gRPC from estimating one. On an idle stream, gRPC would send a ping for
// nearly every message, which would double the number of packets.
const inFlight = 1 << 20

// dialGRPC is the dialer for gRPC connections.
func dialGRPC(e endpoint, c *settings) (connection, error) {
	conn, err := newConn(e, c)
	if err != nil {
		return nil, err
	}
	return grpcConnection{conn, c.shared}, nil
}

func newConn(e endpoint, c *settings, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	secure, err := c.tlsFor(e)
	if err != nil {
		return nil, err
	}
	if secure != nil {
		creds = freshTLS{credentials.NewTLS(secure), e, c}
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
	return grpc.NewClient(e.target, append(options, more...)...)
}

// freshTLS reads RootCAFile at each handshake, because gRPC reconnects automatically.
type freshTLS struct {
	credentials.TransportCredentials
	endpoint endpoint
	cfg      *settings
}

// ClientHandshake implements credentials.TransportCredentials.
func (f freshTLS) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	secure, err := f.cfg.tlsFor(f.endpoint)
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(secure).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (f freshTLS) Clone() credentials.TransportCredentials { return f }

type grpcConnection struct {
	*grpc.ClientConn
	shared *shared
}

// Open implements connection.
func (c grpcConnection) Open(ctx context.Context) (pb.StreamService_OpenClient, error) {
	return c.shared.openStream(ctx, c.ClientConn,
		func(ctx context.Context) (grpc.ClientStream, error) {
			return pb.NewStreamServiceClient(c.ClientConn).Open(ctx)
		})
}

// DialMember waits until the client is connected to a member, and opens a second connection to that
// member. It is intended for calls that this package does not offer, such as calls to other
// services. The calls use the client's login, and fail if the member belongs to another cluster.
// The caller must close the connection. It stays open when the client moves to another member;
// Connection.Changed reports such a move.
func (c *Client) DialMember(
	ctx context.Context, options ...grpc.DialOption,
) (*grpc.ClientConn, Connection, error) {
	at, err := c.Connection(ctx)
	if err != nil {
		return nil, at, err
	}
	m := c.mux
	for _, e := range m.endpoints {
		if e.text == at.Endpoint {
			conn, err := newConn(e, &m.cfg, append(options,
				grpc.WithChainUnaryInterceptor(m.cfg.shared.call()),
				grpc.WithChainStreamInterceptor(m.cfg.shared.stream()))...)
			return conn, at, err
		}
	}
	return nil, at, errors.New("client: the member's endpoint is not configured")
}
