package compare

import (
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/internal/load"
)

// dial creates a client with at least n connections, the same number for each endpoint. The
// connections use the tokens in turn, if there are any. They connect on first use.
func dial(endpoints []string, n int, tokens ...string) (*load.Client, error) {
	var conns []*grpc.ClientConn
	for i := 0; i < n || i%len(endpoints) != 0; i++ {
		var by token
		if len(tokens) > 0 {
			by = token(tokens[i%len(tokens)])
		}
		conn, err := grpc.NewClient("passthrough:///"+endpoints[i%len(endpoints)],
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithPerRPCCredentials(by),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)),
			// A restarted server must be found without delay.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{
					BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, MaxDelay: 50 * time.Millisecond,
				},
				MinConnectTimeout: time.Second,
			}))
		if err != nil {
			return nil, errors.Join(err, load.Over(conns).Close())
		}
		conns = append(conns, conn)
	}
	return load.Over(conns), nil
}

// waitForReady makes a call wait for a connection instead of failing.
var waitForReady = grpc.WaitForReady(true)

func rangeRequest(key []byte, serializable bool) *pb.RangeRequest {
	return &pb.RangeRequest{Key: key, Serializable: serializable}
}
