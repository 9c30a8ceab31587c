package load

import (
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// A Client has connections to the members of one server. It is safe for concurrent use.
type Client struct {
	conns []*grpc.ClientConn
}

// Over returns a client that uses one or more connections, and takes ownership of them.
func Over(conns []*grpc.ClientConn) *Client { return &Client{conns: conns} }

// Close closes the connections.
func (c *Client) Close() error {
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// Len returns the number of connections.
func (c *Client) Len() int { return len(c.conns) }

// Conn returns the connection for the given caller number. Callers are distributed evenly.
func (c *Client) Conn(caller int) *grpc.ClientConn { return c.conns[caller%len(c.conns)] }

// KV returns the KV stub for the given caller number.
func (c *Client) KV(caller int) pb.KVClient { return pb.NewKVClient(c.Conn(caller)) }

// Lease returns the lease stub for the given caller number.
func (c *Client) Lease(caller int) pb.LeaseClient { return pb.NewLeaseClient(c.Conn(caller)) }

// Watch returns the watch stub for the given caller number.
func (c *Client) Watch(caller int) pb.WatchClient { return pb.NewWatchClient(c.Conn(caller)) }
