package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// renewEvery is the interval at which MeasureConditions sends renewals.
	renewEvery = 5 * time.Millisecond
	// checkInterval is how often MeasureConditions checks whether the process was paused. minPause
	// is the shortest pause that counts.
	checkInterval = time.Millisecond
	minPause      = 10 * time.Millisecond
	// lossTimeout is the time after which an unanswered renewal counts as lost.
	lossTimeout = 5 * time.Second
)

// Conditions are the conditions that a lease holder would see, as measured by MeasureConditions.
type Conditions struct {
	RoundTrip Histogram
	// Sent is the number of renewals. Lost is the number of unanswered renewals.
	Sent, Lost int
	// Pauses are periods of at least 10 ms during which this process did not run.
	Pauses Histogram
	Took   time.Duration
}

// MeasureConditions renews a lease at a constant rate for the given time, whether or not earlier
// renewals have been answered. It measures round trips, losses and pauses. At the end, it revokes
// the lease. If progress is not nil, it is called with the fraction of the time that has passed.
func MeasureConditions(
	ctx context.Context, c *Client, d time.Duration, progress func(float64),
) (Conditions, error) {
	g, err := c.Lease(0).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: remoteTTL})
	if err != nil {
		return Conditions{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lossTimeout)
		defer cancel()
		// If this fails, the lease expires.
		_, _ = c.Lease(0).LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: g.ID})
	}()
	if progress == nil {
		progress = func(float64) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Lease(0).LeaseKeepAlive(ctx)
	if err != nil {
		return Conditions{}, err
	}
	w := &conditionProbe{lease: g.ID, stream: stream, sent: make(chan time.Time, int(d/renewEvery)+2)}
	var wg sync.WaitGroup
	wg.Go(w.receive)
	began := time.Now()
	err = w.send(ctx, d, progress)
	w.weather.Took = time.Since(began)
	close(w.sent)
	given := time.AfterFunc(lossTimeout, cancel)
	wg.Wait()
	given.Stop()
	if err == nil && w.failed != nil && !isCancelled(w.failed) {
		err = w.failed
	}
	w.weather.Lost = w.weather.Sent - int(w.weather.RoundTrip.Count())
	return w.weather, err
}

type conditionProbe struct {
	lease  int64
	stream pb.Lease_LeaseKeepAliveClient
	// sent contains the send time of each unanswered renewal. The responses for a lease arrive in
	// order on one stream.
	sent    chan time.Time
	weather Conditions
	failed  error // error from receive
}

// send sends a renewal every renewEvery, and records pauses during which the process did not run.
func (w *conditionProbe) send(ctx context.Context, d time.Duration, progress func(float64)) error {
	began := time.Now()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	last, due := began, began
	for {
		now := time.Now()
		if still := now.Sub(last) - checkInterval; still >= minPause {
			w.weather.Pauses.Add(still)
		}
		last = now
		if now.Sub(began) >= d {
			return nil
		}
		if !now.Before(due) {
			progress(float64(now.Sub(began)) / float64(d))
			due = now.Add(renewEvery)
			w.sent <- now
			if err := w.stream.Send(&pb.LeaseKeepAliveRequest{ID: w.lease}); err != nil {
				return fmt.Errorf("the renewal stream ended: %w", err)
			}
			w.weather.Sent++
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// receive counts responses until all renewals have been answered.
func (w *conditionProbe) receive() {
	for at := range w.sent {
		r, err := w.stream.Recv()
		if err != nil {
			w.failed = err
			return
		}
		if r.TTL <= 0 {
			w.failed = errors.New("bench: the lease ended while it was being renewed")
			return
		}
		w.weather.RoundTrip.Add(time.Since(at))
	}
}
