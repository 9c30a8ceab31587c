package compare

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/load"
)

// drained is the number of leases that expire together.
const drained = 20_000

// ending is the prefix of keys whose leases will end.
var ending = []byte("ended/")

// endingKey returns the i-th key with that prefix.
func endingKey(i int) []byte { return load.NumberedKey(ending, i) }

// runDrain renews leases, each with one key, a final time, and then lets them expire as close
// together as the API allows. It measures how fast they are deleted, and the latency of a writer
// during that time.
func runDrain(ctx context.Context, e *Env) (Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ttl, err := e.drainTTL(ctx, drained)
	if err != nil {
		return Result{}, err
	}
	gone, err := load.WatchDeletions(ctx, e.Client.Watch(0), ending, drained)
	if err != nil {
		return Result{}, err
	}
	var followed error
	var wg sync.WaitGroup
	wg.Go(func() { followed = gone.Follow() })
	d := &draining{env: e, gone: gone, ttl: ttl}
	err = d.run(ctx, drained)
	cancel()
	wg.Wait()
	if err != nil {
		return Result{}, errors.Join(err, followed)
	}
	return d.result()
}

// drainTTL finds a TTL, in seconds, that is long enough to grant and renew n leases with keys. It
// first measures how fast this server is.
func (e *Env) drainTTL(ctx context.Context, n int) (int64, error) {
	var h load.Histogram
	err := closedLoop(ctx, 256, time.Second, &h, func(ctx context.Context, c, _ int) error {
		return e.grantWithKey(ctx, c, []byte("pace"), longTTL)
	})
	if err != nil {
		return 0, err
	}
	pace := float64(h.Count())
	return int64(math.Ceil(1.7*float64(n)/pace)) + 4, nil
}

// draining is one run of the workload.
type draining struct {
	env  *Env
	gone *load.Deletions
	ttl  int64 // in seconds

	sent []time.Time    // by lease: when the last renewal was sent
	puts load.Histogram // latency of a writer meanwhile
	m    measure
}

func (d *draining) run(ctx context.Context, n int) error {
	leases := make([]int64, n)
	value := make([]byte, load.ValueSize)
	e := d.env
	err := load.Spread(ctx, 256, n, func(ctx context.Context, c, i int) error {
		id, err := e.grant(ctx, c, d.ttl)
		if err != nil {
			return err
		}
		leases[i] = id
		return e.put(ctx, c, &pb.PutRequest{Key: endingKey(i), Value: value, Lease: id})
	})
	if err != nil {
		return err
	}
	if d.sent, err = e.renewAll(ctx, leases); err != nil {
		return err
	}
	wait := time.Until(d.firstExpiry())
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return d.m.during(e.Server, func() error { return d.awaitExpiry(ctx) })
}

// awaitExpiry waits for the leases to end. Meanwhile it performs 1,000 puts per second, until the
// last lease has ended or the time limit is reached.
func (d *draining) awaitExpiry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.env.DrainCap)
	defer cancel()
	go func() {
		select {
		case <-d.gone.All():
			cancel()
		case <-ctx.Done():
		}
	}()
	return d.env.putSteadily(ctx, int((d.env.DrainCap+time.Second)/putEvery), &d.puts)
}

// putEvery is the interval between puts of a steady writer.
const putEvery = time.Millisecond

// putSteadily puts n times, or until ctx ends, to keys that are not attached to a lease.
func (e *Env) putSteadily(ctx context.Context, n int, h *load.Histogram) error {
	value := make([]byte, load.ValueSize)
	return openLoop(ctx, n, putEvery, h, func(ctx context.Context, c, i int) error {
		r := &pb.PutRequest{Key: endingKey(i)[1:], Value: value}
		// A put in flight when ctx ends is still measured.
		err := e.put(context.WithoutCancel(ctx), c, r)
		if overloaded(err) {
			return nil // overload is an answer, and its latency counts
		}
		return err
	})
}

// overloaded reports whether a server rejected a call because it is overloaded. etcd 3.7 returns
// the code Unknown in this case.
func overloaded(err error) bool {
	refused := rpctypes.ErrGRPCRequestTooManyRequests
	return status.Code(err) == codes.ResourceExhausted ||
		status.Convert(err).Message() == status.Convert(refused).Message()
}

func (d *draining) firstExpiry() time.Time {
	first := d.sent[0]
	for _, t := range d.sent {
		if t.Before(first) {
			first = t
		}
	}
	return first.Add(time.Duration(d.ttl) * time.Second)
}

// result returns the result. The rate is the number of deleted leases divided by the time from the
// first expiry to the last deletion. It cannot exceed the rate of the final renewals, which
// determine when the leases expire. The figure "ended within" is the time from the first to the
// last expiry.
func (d *draining) result() (Result, error) {
	ttl := time.Duration(d.ttl) * time.Second
	if err := d.gone.Lateness(&d.m.hist, d.sent, ttl); err != nil {
		return Result{}, err
	}
	first, last := d.firstExpiry(), time.Time{}
	end := first
	for i := range d.sent {
		if t := d.sent[i].Add(ttl); t.After(end) {
			end = t
		}
		if t, ok := d.gone.Seen(i); ok && t.After(last) {
			last = t
		}
	}
	r := d.m.result()
	r.Rate = 0
	if n := d.m.hist.Count(); n > 0 {
		r.Rate = float64(n) / last.Sub(first).Seconds()
	}
	r.More = []Metric{
		{"latest", load.Millis(d.m.hist.Max()), "ms"},
		{"put p99", load.Millis(d.puts.Quantile(0.99)), "ms"},
		{"put max", load.Millis(d.puts.Max()), "ms"},
		{"ended within", load.Millis(end.Sub(first)), "ms"},
		{"left at the cap", float64(d.gone.Left()), "leases"},
	}
	return r, nil
}
