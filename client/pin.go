package client

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
)

// keyCluster is the metadata key for the ID of a cluster. A member sends the ID of its own cluster,
// and a client sends the ID it expects. A member rejects a client that expects another cluster.
const keyCluster = "leasehold-cluster"

// otherClusterError is an [ErrOtherCluster] that contains the IDs of the client's cluster and of
// the endpoint's cluster.
type otherClusterError struct {
	want, got uint64
	refused   bool // the member rejected the request, so nothing changed
}

func (e *otherClusterError) Unwrap() error { return ErrOtherCluster }

func (e *otherClusterError) Error() string {
	return fmt.Sprintf("the endpoint belongs to cluster %x, but this client belongs to "+
		"cluster %x; if the endpoint is correct, restart the client with that cluster's ID, "+
		"or without one",
		e.got, e.want)
}

// pin holds the ID of the client's cluster; it is 0 until the ID is known.
type pin struct{ id atomic.Uint64 }

// context adds the expected cluster to the metadata of ctx.
func (p *pin) context(ctx context.Context) context.Context {
	if id := p.id.Load(); id != 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, keyCluster, strconv.FormatUint(id, 16))
	}
	return ctx
}

// check compares the header of a member's answer with the pin. The first answer sets the pin. A
// server that does not send the header is not a Leasehold member.
func (p *pin) check(md metadata.MD) *otherClusterError {
	texts := md.Get(keyCluster)
	if len(texts) == 0 {
		return nil
	}
	got, err := strconv.ParseUint(texts[0], 16, 64)
	if err != nil || got == 0 || p.id.CompareAndSwap(0, got) {
		return nil
	}
	if want := p.id.Load(); want != got {
		return &otherClusterError{want: want, got: got}
	}
	return nil
}

// ClusterID returns the ID of the client's cluster: either the configured ID or the ID reported by
// the first member that answered. It returns 0 until a member has answered.
func (c *Client) ClusterID() uint64 { return c.mux.cfg.shared.pin.id.Load() }
