package web

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// loopbackBuffer is the size of the in-memory pipe, in bytes each way.
const loopbackBuffer = 256 << 10

// Bounds on the unread answers that gRPC keeps for one call of the gateway, and for all of them. A
// client that does not read its JSON stream blocks the gateway, and answers that have reached the
// gateway no longer count for the client's connection (listen.Answers). These are the smallest
// sizes that gRPC accepts.
const (
	loopbackStream = 64 << 10
	loopbackAll    = 1 << 20
)

// Loopback returns a listener for the member's gRPC server and an in-process connection to it: it
// works with every kind of listener, even a Unix socket or mutual TLS, and needs no system call.
// The caller closes both.
func Loopback() (net.Listener, *grpc.ClientConn, error) {
	l := bufconn.Listen(loopbackBuffer)
	conn, err := grpc.NewClient("passthrough:///loopback",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return l.DialContext(ctx)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(loopbackStream),
		grpc.WithStaticConnWindowSize(loopbackAll),
		// The server decides what is too large; answers may have any size.
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("web: in-process connection: %w", err)
	}
	return l, conn, nil
}

func baseContext(ctx context.Context) func(net.Listener) context.Context {
	return func(net.Listener) context.Context { return ctx }
}

var _ http.Handler = (*grpc.Server)(nil) // Options.GRPC
