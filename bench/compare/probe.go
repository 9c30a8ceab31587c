package compare

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/load"
)

const (
	// probeEvery is the interval between the attempts of a probe. It is also the resolution: a
	// figure can be too large by this much.
	probeEvery = 5 * time.Millisecond
	// tryLimit is the timeout of one attempt. It does not limit the resolution, because other
	// attempts start in the meantime.
	tryLimit = time.Second
	// failoverLimit is how long a cluster may be unavailable before it counts as lost.
	failoverLimit = time.Minute
)

// A try is one call that may fail. It returns the term in which it was acknowledged.
type try func(context.Context) (term uint64, err error)

// A probe repeats a call until an attempt that began after a fault is acknowledged. Attempts start
// at a steady pace, whether or not earlier ones have been answered. A call that hangs therefore
// does not delay the result, and calls that fail immediately do not take CPU time from the
// election.
type probe struct {
	call  try
	every time.Duration
	limit time.Duration // timeout of one attempt
}

// first returns the time from began until the first acknowledgment in a term later than old. An
// answer in the old term was already in flight when the leader died.
func (p probe) first(ctx context.Context, began time.Time, old uint64) (time.Duration, error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	acks := make(chan time.Time, 1)
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, p.limit)
			defer cancel()
			if term, err := p.call(ctx); err != nil || term <= old {
				return
			}
			select {
			case acks <- time.Now():
			default:
			}
		})
		select {
		case at := <-acks:
			return at.Sub(began), nil
		case <-ctx.Done():
			return 0, fmt.Errorf("bench: no call was acknowledged: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// firsts runs probes in parallel and returns the result of each.
func firsts(
	ctx context.Context, probes []probe, began time.Time, old uint64,
) ([]time.Duration, error) {
	took := make([]time.Duration, len(probes))
	err := load.Parallel(len(probes), func(i int, _ *load.Histogram) (err error) {
		took[i], err = probes[i].first(ctx, began, old)
		return err
	}, nil)
	return took, err
}

// writeProbe returns a probe that puts through one connection.
func writeProbe(c *load.Client) probe {
	value := make([]byte, load.ValueSize)
	call := func(ctx context.Context) (uint64, error) {
		r, err := c.KV(0).Put(ctx, &pb.PutRequest{Key: []byte("probe"), Value: value})
		return r.GetHeader().GetRaftTerm(), err
	}
	return probe{call, probeEvery, tryLimit}
}

// renewProbe returns a probe that renews a lease through one connection. Each attempt has its own
// stream, so that a stream that hangs does not delay the next attempt.
func renewProbe(c *load.Client, lease int64) probe {
	call := func(ctx context.Context) (uint64, error) {
		stream, err := c.Lease(0).LeaseKeepAlive(ctx)
		if err != nil {
			return 0, err
		}
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: lease}); err != nil {
			return 0, err
		}
		r, err := stream.Recv()
		if err != nil {
			return 0, err
		}
		if r.TTL <= 0 {
			return 0, fmt.Errorf("bench: lease %d is gone", lease)
		}
		return r.GetHeader().GetRaftTerm(), nil
	}
	return probe{call, probeEvery, tryLimit}
}
