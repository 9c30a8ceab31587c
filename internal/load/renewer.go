package load

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
	// RenewStreams is the number of streams to use for renewing many leases.
	RenewStreams = 8
	// window is the number of requests in flight per stream.
	window = 64
)

// A Renewer saturates one keep-alive stream. It matches responses to requests by lease, because a
// server can respond out of order.
type Renewer struct {
	Leases []int64    // renewed in a cycle
	Hist   *Histogram // times from a renewal to its response

	base     time.Time
	sent     []atomic.Int64 // when the latest renewal of each lease was sent, since base
	index    map[int64]int
	finished atomic.Bool // whether all requests have been answered
}

// Run sends renewals until more returns false for the number of the next renewal. It returns once
// all renewals have been answered.
func (r *Renewer) Run(ctx context.Context, c pb.LeaseClient, more func(i int) bool) error {
	r.base = time.Now()
	r.sent = make([]atomic.Int64, len(r.Leases))
	r.index = make(map[int64]int, len(r.Leases))
	for i, id := range r.Leases {
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

func (r *Renewer) send(
	ctx context.Context, stream pb.Lease_LeaseKeepAliveClient, slots chan struct{},
	more func(int) bool,
) error {
	for i := 0; more(i); i++ {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		k := i % len(r.Leases)
		r.sent[k].Store(int64(time.Since(r.base)))
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: r.Leases[k]}); err != nil {
			return err
		}
	}
	// Once all slots have been acquired, nothing is in flight.
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

// receive counts responses and frees their slots, until all requests have been answered and the
// stream has ended.
func (r *Renewer) receive(stream pb.Lease_LeaseKeepAliveClient, slots chan struct{}) error {
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
			return fmt.Errorf("bench: lease %d was renewed with a TTL of %d s", resp.ID, resp.TTL)
		}
		r.Hist.Add(time.Since(r.base) - time.Duration(r.sent[i].Load()))
		<-slots
	}
}

// Sent returns the time at which the latest renewal of Leases[i] was sent. The lease has its full
// TTL from that time on.
func (r *Renewer) Sent(i int) time.Time { return r.base.Add(time.Duration(r.sent[i].Load())) }
