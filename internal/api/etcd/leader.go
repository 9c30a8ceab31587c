package etcd

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/listen"
)

// leaderPatience is how many checks in a row must find no leader before the streams that require
// one are ended. Waiting for an election costs a client less than reconnecting does. The same
// applies to new streams. When a leader dies, its clients reconnect during the election, and etcd
// clients end a watch permanently if they receive the error for a missing leader.
const leaderPatience = 3

// leaderGuard handles calls and streams that require a leader (etcd's "hasleader" metadata). When
// there is no leader, it rejects these calls and ends these streams. It is safe for concurrent use.
type leaderGuard struct {
	node     Node
	interval time.Duration // interval between checks

	mu      sync.Mutex // guards the following fields
	streams map[*guardedStream]struct{}
	looking chan struct{} // closed when there are no streams; nil if no goroutine is checking
}

// requiresLeader reports whether the call requires a leader.
func requiresLeader(ctx context.Context) bool {
	v := listen.Header(ctx, rpctypes.MetadataRequireLeaderKey)
	return len(v) > 0 && v[0] == rpctypes.MetadataHasLeader
}

func (g *leaderGuard) leaderless() bool { return g.node.Status().Leader == 0 }

// guard wraps each method of the service with a check. For a call that does not require a leader,
// the check costs one metadata lookup.
func (g *leaderGuard) guard(d grpc.ServiceDesc) *grpc.ServiceDesc {
	return intercept.Inside(d, g.unary, g.stream)
}

func (g *leaderGuard) unary(ctx context.Context) grpc.UnaryServerInterceptor {
	if requiresLeader(ctx) && g.leaderless() {
		return refuse
	}
	return nil
}

// refuse rejects a call because there is no leader.
func refuse(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
	return nil, rpctypes.ErrGRPCNoLeader
}

// stream is an intercept.Stream.
func (g *leaderGuard) stream(
	s grpc.ServerStream, _ *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	if !requiresLeader(s.Context()) {
		return s, nil, nil
	}
	ctx, cancel := context.WithCancelCause(s.Context())
	guarded := &guardedStream{ServerStream: s, ctx: ctx, cancel: cancel}
	g.add(guarded)
	return guarded, func(err error) error {
		g.remove(guarded)
		cancel(nil)
		return err
	}, nil
}

func (g *leaderGuard) add(s *guardedStream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.streams == nil {
		g.streams = make(map[*guardedStream]struct{})
	}
	g.streams[s] = struct{}{}
	if g.looking == nil {
		g.looking = make(chan struct{})
		go g.monitor(g.looking)
	}
}

func (g *leaderGuard) remove(s *guardedStream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.streams, s)
	g.stopIfIdleLocked()
}

// stopIfIdleLocked ends the checking goroutine if there are no streams left.
func (g *leaderGuard) stopIfIdleLocked() {
	if len(g.streams) == 0 && g.looking != nil {
		close(g.looking)
		g.looking = nil
	}
}

// monitor ends the streams when there has been no leader for a while. It returns when there are no
// streams left.
func (g *leaderGuard) monitor(none chan struct{}) {
	t := time.NewTicker(g.interval)
	defer t.Stop()
	for missed := 0; ; {
		select {
		case <-none:
			return
		case <-t.C:
		}
		if missed++; !g.leaderless() {
			missed = 0
		}
		if missed >= leaderPatience {
			g.endAll(none)
			return
		}
	}
}

// endAll ends all streams. The channel identifies the calling goroutine.
func (g *leaderGuard) endAll(none chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.looking != none {
		return // those streams have ended, and new ones have started
	}
	for s := range g.streams {
		s.cancel(rpctypes.ErrGRPCNoLeader)
	}
	clear(g.streams)
	g.stopIfIdleLocked()
}

// guardedStream ends when there is no leader. The cause of its context is then ErrGRPCNoLeader.
type guardedStream struct {
	grpc.ServerStream
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// Context implements grpc.ServerStream.
func (s *guardedStream) Context() context.Context { return s.ctx }
