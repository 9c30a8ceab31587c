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
	// renewEvery is the interval of Watchful's renewals.
	renewEvery = 5 * time.Millisecond
	// blink is the interval of checks for pauses of the process, and stillness the shortest pause
	// that counts.
	blink     = time.Millisecond
	stillness = 10 * time.Millisecond
	// hopeless is the time after which a renewal without an answer counts as lost.
	hopeless = 5 * time.Second
)

// A Weather describes the conditions for a lease holder, as measured by Watchful.
type Weather struct {
	RoundTrip Histogram
	// Sent counts renewals, Lost those without an answer.
	Sent, Lost int
	// Pauses are times of at least 10 ms during which this process did not run.
	Pauses Histogram
	Took   time.Duration
}

// Watchful renews a lease at a constant rate for a time, whether or not earlier renewals are
// answered, and measures round trips, losses and pauses. At the end it revokes the lease. progress,
// if not nil, is called with the fraction that is done.
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
		// On failure, the lease expires.
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
	// sent holds the time of each renewal that has no answer yet. A lease's answers on one stream
	// arrive in order.
	sent    chan time.Time
	weather Weather
	failed  error // of receive
}

// send sends renewals at their rate, and records pauses, when it could not.
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

// receive counts answers until all renewals are answered.
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
