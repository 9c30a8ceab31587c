package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	keepAliveLeases  = 100_000
	keepAliveStreams = 8
	// window is how many requests a stream has in flight.
	window = 64
)

// runKeepAlive renews many leases round and round, on streams that are kept
// full.
func runKeepAlive(ctx context.Context, e *Env) (Result, error) {
	leases, err := e.grantMany(ctx, keepAliveLeases, longTTL)
	if err != nil {
		return Result{}, err
	}
	var m measure
	err = m.during(e.Server, func() error {
		deadline := time.Now().Add(e.Duration)
		return parallel(keepAliveStreams, func(caller int, mine *Histogram) error {
			share := len(leases) / keepAliveStreams
			s := renewer{leases: leases[caller*share:][:share], hist: mine}
			more := func(int) bool { return time.Now().Before(deadline) }
			return s.run(ctx, e.Client.Lease(caller), more)
		}, &m.hist)
	})
	return m.result(), err
}

// renewAll renews every lease once, as fast as it goes, and returns when each
// renewal was sent: from then on the lease has its full TTL.
func (e *Env) renewAll(ctx context.Context, leases []int64) ([]time.Time, error) {
	sent := make([]time.Time, len(leases))
	err := parallel(keepAliveStreams, func(caller int, mine *Histogram) error {
		lo := caller * len(leases) / keepAliveStreams
		hi := (caller + 1) * len(leases) / keepAliveStreams
		s := renewer{leases: leases[lo:hi], hist: mine}
		err := s.run(ctx, e.Client.Lease(caller), func(i int) bool { return i < hi-lo })
		for i := range s.sent {
			sent[lo+i] = s.base.Add(time.Duration(s.sent[i].Load()))
		}
		return err
	}, nil)
	return sent, err
}

// A renewer keeps one keep-alive stream full. Answers are matched to requests
// by lease: a server may answer out of order.
type renewer struct {
	leases []int64
	hist   *Histogram

	base     time.Time
	sent     []atomic.Int64 // by lease: when its renewal was sent, since base
	index    map[int64]int
	finished atomic.Bool // all that was sent is answered
}

// run sends while more says so for the number of the request, and returns when
// every request has its answer.
func (r *renewer) run(ctx context.Context, c pb.LeaseClient, more func(i int) bool) error {
	r.base = time.Now()
	r.sent = make([]atomic.Int64, len(r.leases))
	r.index = make(map[int64]int, len(r.leases))
	for i, id := range r.leases {
		r.index[id] = i
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	slots := make(chan struct{}, window)
	var received error
	var wg sync.WaitGroup
	wg.Go(func() {
		received = r.receive(stream, slots)
		if received != nil {
			cancel()
		}
	})
	err = r.send(ctx, stream, slots, more)
	wg.Wait()
	return errors.Join(received, err)
}

func (r *renewer) send(
	ctx context.Context, stream pb.Lease_LeaseKeepAliveClient, slots chan struct{},
	more func(int) bool,
) error {
	for i := 0; more(i); i++ {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		k := i % len(r.leases)
		r.sent[k].Store(int64(time.Since(r.base)))
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: r.leases[k]}); err != nil {
			return err
		}
	}
	// Every slot taken means that nothing is in flight.
	for range window {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	r.finished.Store(true)
	return stream.CloseSend()
}

// receive counts answers and frees their slots, until all that was sent is
// answered and the stream ends.
func (r *renewer) receive(stream pb.Lease_LeaseKeepAliveClient, slots chan struct{}) error {
	for {
		resp, err := stream.Recv()
		if err != nil {
			if r.finished.Load() {
				return nil
			}
			return fmt.Errorf("keep-alive stream: %w", err)
		}
		i, ok := r.index[resp.ID]
		if !ok || resp.TTL <= 0 {
			return fmt.Errorf("bench: lease %d is renewed for %d s", resp.ID, resp.TTL)
		}
		r.hist.Add(time.Since(r.base) - time.Duration(r.sent[i].Load()))
		<-slots
	}
}
