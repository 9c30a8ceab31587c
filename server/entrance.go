package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/intercept"
)

// entrance delays calls until a member can answer them. The pages (health, metrics, version) are
// served earlier, and show what the member is waiting for.
//
// For two election timeouts, calls wait and gRPC connections are not accepted, so that clients with
// other endpoints try those. After that, calls are rejected immediately.
type entrance struct {
	node   *node
	opened chan struct{} // closed when calls are admitted
	isOpen atomic.Bool   // set before opened is closed; used on the fast path
	late   chan struct{} // closed when calls no longer wait
	open   func()
	refuse func()
}

func newEntrance(n *node) *entrance {
	e := &entrance{node: n, opened: make(chan struct{}), late: make(chan struct{})}
	e.open = sync.OnceFunc(func() { e.isOpen.Store(true); close(e.opened) })
	e.refuse = sync.OnceFunc(func() { close(e.late) })
	return e
}

// closed returns why calls are not admitted, or nil if they are.
func (e *entrance) closed() error {
	select {
	case <-e.opened:
		return nil
	default:
	}
	code, why := cause.NoLeader, e.node.Outage()
	if why == "" {
		code, why = cause.NoState, "it does not have the cluster's current state yet"
	}
	return api.NotReady(code, fmt.Sprintf("leasehold: member %x is not ready to serve: %s",
		e.node.member, why))
}

// pass waits until a call is admitted, or returns why it is not.
func (e *entrance) pass(ctx context.Context) error {
	if e.isOpen.Load() {
		return nil
	}
	select {
	case <-e.opened:
	case <-e.late:
	case <-ctx.Done():
	}
	return e.closed()
}

// wait waits until connections can be accepted.
func (e *entrance) wait() {
	select {
	case <-e.opened:
	case <-e.late:
	}
}

// stream is an intercept.Stream.
func (e *entrance) stream(
	stream grpc.ServerStream, _ *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	return stream, nil, e.pass(stream.Context())
}
