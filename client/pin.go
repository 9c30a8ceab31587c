package client

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
)

// keyCluster is the header in which a member reports its cluster and a client the cluster that it
// expects. A member rejects a client that expects another cluster.
const keyCluster = "leasehold-cluster"

// OtherClusterError means that an endpoint belongs to a different cluster. The client ignores that
// endpoint and tries the others. If all endpoints belong to other clusters, calls fail at once.
type OtherClusterError struct {
	// Want is the ID of the client's cluster: [Config.ClusterID] or, if that is 0, the cluster of
	// the first member that answered.
	Want uint64
	// Got is the ID of the endpoint's cluster.
	Got uint64

	refused bool // the member rejected the request, so nothing changed
}

// Error implements error.
func (e *OtherClusterError) Error() string {
	return fmt.Sprintf("the endpoint belongs to cluster %x, and this client to cluster %x; "+
		"if the endpoint is right, restart the client with that cluster's ID, or with none",
		e.Got, e.Want)
}

// pin is the ID of the client's cluster, 0 until known.
type pin struct{ id atomic.Uint64 }

// context adds the expected cluster to the metadata of ctx.
func (p *pin) context(ctx context.Context) context.Context {
	if id := p.id.Load(); id != 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, keyCluster, strconv.FormatUint(id, 16))
	}
	return ctx
}

// check compares the header of a member's answer with the pin. The first answer sets it. A server
// without the header is not one of ours.
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

// ClusterID returns the ID of the client's cluster: the configured one, or that of the first member
// that answered. It is 0 until one has.
func (c *Client) ClusterID() uint64 { return c.mux.cfg.shared.pin.id.Load() }
