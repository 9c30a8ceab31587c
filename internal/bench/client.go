package bench

import (
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/internal/api/etcd/v3lockpb"
)

// A Client is a few connections to the members of one server. It is safe for
// concurrent use.
type Client struct {
	conns []*grpc.ClientConn
}

// Dial makes a client of at least n connections, as many to each endpoint. They
// connect on first use.
func Dial(endpoints []string, n int) (*Client, error) {
	c := &Client{}
	for i := 0; i < n || i%len(endpoints) != 0; i++ {
		conn, err := grpc.NewClient("passthrough:///"+endpoints[i%len(endpoints)],
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)),
			// A server that comes back is to be found at once.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{
					BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, MaxDelay: 50 * time.Millisecond,
				},
				MinConnectTimeout: time.Second,
			}))
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

// Over makes a client of connections that are there already, at least one. It
// closes them when it is closed.
func Over(conns []*grpc.ClientConn) *Client { return &Client{conns: conns} }

// Close closes the connections.
func (c *Client) Close() error {
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

func (c *Client) conn(caller int) *grpc.ClientConn { return c.conns[caller%len(c.conns)] }

// KV is the stub that a caller with this number uses; callers share the
// connections evenly.
func (c *Client) KV(caller int) pb.KVClient { return pb.NewKVClient(c.conn(caller)) }

// Lease is like KV, for leases.
func (c *Client) Lease(caller int) pb.LeaseClient { return pb.NewLeaseClient(c.conn(caller)) }

// Watch is like KV, for watches.
func (c *Client) Watch(caller int) pb.WatchClient { return pb.NewWatchClient(c.conn(caller)) }

// Lock is like KV, for locks.
func (c *Client) Lock(caller int) v3lockpb.LockClient {
	return v3lockpb.NewLockClient(c.conn(caller))
}

// Maintenance is like KV, for questions about the member.
func (c *Client) Maintenance(caller int) pb.MaintenanceClient {
	return pb.NewMaintenanceClient(c.conn(caller))
}

// waitForReady makes a call wait for a connection instead of failing.
var waitForReady = grpc.WaitForReady(true)

func rangeRequest(key []byte, serializable bool) *pb.RangeRequest {
	return &pb.RangeRequest{Key: key, Serializable: serializable}
}
