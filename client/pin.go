package client

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
)

// keyCluster is the header in which a member says which cluster it is of, and a client which
// one it wants. A member refuses a client that wants another.
const keyCluster = "leasehold-cluster"

// OtherClusterError means that an endpoint belongs to another cluster than the client's. The
// client ignores that endpoint and tries the others. If all endpoints belong to other clusters,
// calls fail at once.
type OtherClusterError struct {
	// Want is the ID of the client's cluster: of [Config.ClusterID], or else of the cluster of
	// the first member that has answered the client.
	Want uint64
	// Got is the ID of the endpoint's cluster.
	Got uint64

	refused bool // by the member, so nothing was done
}

// Error implements error.
func (e *OtherClusterError) Error() string {
	return fmt.Sprintf("the endpoint belongs to cluster %x, and this client to cluster %x; "+
		"if the endpoint is right, start the client anew with that cluster's ID, or with none",
		e.Got, e.Want)
}

// pin is the cluster of a client, 0 while it is not known.
type pin struct{ id atomic.Uint64 }

// context adds to what a member is told which cluster it must be of.
func (p *pin) context(ctx context.Context) context.Context {
	if id := p.id.Load(); id != 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, keyCluster, strconv.FormatUint(id, 16))
	}
	return ctx
}

// check looks at the header with which a member has answered. The first one says which the
// cluster is. A member that does not say is none of ours.
func (p *pin) check(md metadata.MD) *OtherClusterError {
	texts := md.Get(keyCluster)
	if len(texts) == 0 {
		return nil
	}
	got, err := strconv.ParseUint(texts[0], 16, 64)
	if err != nil || got == 0 || p.id.CompareAndSwap(0, got) {
		return nil
	}
	if want := p.id.Load(); want != got {
		return &OtherClusterError{Want: want, Got: got}
	}
	return nil
}

// ClusterID returns the ID of the client's cluster: the configured one, or that of the first
// member that answered. It is 0 while no member has.
func (c *Client) ClusterID() uint64 { return c.mux.cfg.shared.pin.id.Load() }
