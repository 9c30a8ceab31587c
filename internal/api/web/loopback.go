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

// What gRPC keeps, at most, of the answers of a call, and of all calls, that the gateway has not
// read. A client that does not read its stream of JSON holds the gateway up, and what has come
// this far is on no account of its connection (listen.Answers). These are the least that gRPC
// takes, and do not grow with what has come through before.
const (
	loopbackStream = 64 << 10
	loopbackAll    = 1 << 20
)

// Loopback returns a listener for the member's gRPC server and a connection to
// it that stays inside the process: it works whatever the member listens on, a
// unix socket or mutual TLS, and costs no system call. The caller closes both.
func Loopback() (net.Listener, *grpc.ClientConn, error) {
	l := bufconn.Listen(loopbackBuffer)
	conn, err := grpc.NewClient("passthrough:///loopback",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return l.DialContext(ctx)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(loopbackStream),
		grpc.WithStaticConnWindowSize(loopbackAll),
		// The server decides what is too large; answers may be of any size.
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
