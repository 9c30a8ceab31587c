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

// loopbackBuffer is the size of the in-memory pipe, in bytes per direction.
const loopbackBuffer = 256 << 10

// Limits on the unread responses that gRPC buffers for one gateway call, and for all gateway calls
// together. A client that does not read its JSON stream blocks the gateway. Responses that have
// reached the gateway no longer count toward the limit of the client's connection (see
// listen.Answers). These are the smallest sizes that gRPC accepts.
const (
	loopbackStream = 64 << 10
	loopbackAll    = 1 << 20
)

// Loopback returns a listener for the member's gRPC server and an in-process connection to it.
// Calls through it need no system calls, and it works regardless of how the server listens, even on
// a Unix socket or with mutual TLS. The caller must close both.
func Loopback() (net.Listener, *grpc.ClientConn, error) {
	l := bufconn.Listen(loopbackBuffer)
	conn, err := grpc.NewClient("passthrough:///loopback",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return l.DialContext(ctx)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(loopbackStream),
		grpc.WithStaticConnWindowSize(loopbackAll),
		// The server decides what is too large. Responses can have any size.
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

var _ http.Handler = (*grpc.Server)(nil) // see Options.GRPC
