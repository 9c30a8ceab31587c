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
	// renewEvery is the interval between Watchful's renewals.
	renewEvery = 5 * time.Millisecond
	// blink is the interval between checks for pauses of the process. stillness is the shortest
	// pause that counts.
	blink     = time.Millisecond
	stillness = 10 * time.Millisecond
	// hopeless is the time after which an unanswered renewal counts as lost.
	hopeless = 5 * time.Second
)

// A Weather describes the conditions for a lease holder, as measured by Watchful.
type Weather struct {
	RoundTrip Histogram
	// Sent is the number of renewals. Lost is the number of unanswered renewals.
	Sent, Lost int
	// Pauses are periods of at least 10 ms in which this process did not run.
	Pauses Histogram
	Took   time.Duration
}

// Watchful renews a lease at a constant rate for the given time, whether or not earlier renewals
// have been answered. It measures round trips, losses and pauses. At the end, it revokes the lease.
// If progress is not nil, it is called with the fraction of the time that has passed.
func Watchful(
	ctx context.Context, c *Client, d time.Duration, progress func(float64),
) (Weather, error) {
	g, err := c.Lease(0).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: remoteTTL})
	if err != nil {
		return Weather{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hopeless)
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
		return Weather{}, err
	}
	w := &watchful{lease: g.ID, stream: stream, sent: make(chan time.Time, int(d/renewEvery)+2)}
	var wg sync.WaitGroup
	wg.Go(w.receive)
	began := time.Now()
	err = w.send(ctx, d, progress)
	w.weather.Took = time.Since(began)
	close(w.sent)
	given := time.AfterFunc(hopeless, cancel)
	wg.Wait()
	given.Stop()
	if err == nil && w.failed != nil && !isCancelled(w.failed) {
		err = w.failed
	}
	w.weather.Lost = w.weather.Sent - int(w.weather.RoundTrip.Count())
	return w.weather, err
}

type watchful struct {
	lease  int64
	stream pb.Lease_LeaseKeepAliveClient
	// sent contains the send time of each renewal that has not been answered. The responses for a
	// lease arrive in order on one stream.
	sent    chan time.Time
	weather Weather
	failed  error // error from receive
}

// send sends renewals at the given rate, and records pauses in which it could not do so.
func (w *watchful) send(ctx context.Context, d time.Duration, progress func(float64)) error {
	began := time.Now()
	tick := time.NewTicker(blink)
	defer tick.Stop()
	last, due := began, began
	for {
		now := time.Now()
		if still := now.Sub(last) - blink; still >= stillness {
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
				return fmt.Errorf("the stream of renewals ended: %w", err)
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
func (w *watchful) receive() {
	for at := range w.sent {
		r, err := w.stream.Recv()
		if err != nil {
			w.failed = err
			return
		}
		if r.TTL <= 0 {
			w.failed = errors.New("bench: the lease ended while it was renewed")
			return
		}
		w.weather.RoundTrip.Add(time.Since(at))
	}
}
