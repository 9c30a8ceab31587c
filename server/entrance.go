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

// entrance holds up calls until a member can answer them. Its pages (health, metrics, version)
// are served before: they tell what the member waits for.
//
// For two election timeouts calls wait, and connections of gRPC are not taken, for a client that
// knows other members is better off with one of those. After that calls are refused at once.
type entrance struct {
	node   *node
	opened chan struct{} // closed when calls are let in
	isOpen atomic.Bool   // set before that, for the usual case
	late   chan struct{} // closed when calls do not wait any longer
	open   func()
	refuse func()
}

func newEntrance(n *node) *entrance {
	e := &entrance{node: n, opened: make(chan struct{}), late: make(chan struct{})}
	e.open = sync.OnceFunc(func() { e.isOpen.Store(true); close(e.opened) })
	e.refuse = sync.OnceFunc(func() { close(e.late) })
	return e
}

// closed returns why calls are not let in, nil if they are.
func (e *entrance) closed() error {
	select {
	case <-e.opened:
		return nil
	default:
	}
	code, why := cause.NoLeader, e.node.Outage()
	if why == "" {
		code, why = cause.NoState, "it does not have the present state of the cluster yet"
	}
	return api.NotReady(code, fmt.Sprintf("leasehold: member %x is not ready to serve: %s",
		e.node.member, why))
}

// pass returns when a call is let in, or why it is not.
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

// wait returns when connections are to be taken.
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
