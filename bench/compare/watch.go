package compare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/load"
)

// A fanout is one key with a single writer and many watchers.
type fanout struct {
	env  *Env
	base time.Time

	wrote   atomic.Int64 // when the current put was sent, relative to base
	pending atomic.Int64 // pending deliveries of the current put
	all     chan struct{}
	seen    []load.Histogram
}

// runWatch puts one key repeatedly. Before each put, it waits until all watchers have received the
// previous one.
func runWatch(ctx context.Context, e *Env) (Result, error) {
	const watchers = 1000
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &fanout{
		env: e, base: time.Now(), all: make(chan struct{}, 1), seen: make([]load.Histogram, watchers),
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	err := load.Spread(ctx, 64, watchers, func(_ context.Context, _, i int) error {
		stream, err := load.OpenWatch(ctx, e.Client.Watch(i), []byte("fanout"), nil)
		if err != nil {
			return err
		}
		wg.Go(func() {
			if err := f.follow(stream, &f.seen[i]); ctx.Err() == nil {
				cancel(err)
			}
		})
		return nil
	})
	if err != nil {
		return Result{}, err
	}
	var m measure
	var puts load.Histogram
	err = m.during(e.Server, func() error { return f.write(ctx, &puts) })
	if err != nil {
		return Result{}, err
	}
	cancel(nil)
	wg.Wait()
	for i := range f.seen {
		m.hist.Merge(&f.seen[i])
	}
	r := m.result()
	r.More = []Metric{{"put p99", load.Millis(puts.Quantile(0.99)), "ms"}}
	return r, nil
}

// write puts until the time is up. After each put, it waits for every watcher.
func (f *fanout) write(ctx context.Context, puts *load.Histogram) error {
	value := make([]byte, load.ValueSize)
	for time.Since(f.base) < f.env.Duration+time.Second {
		f.pending.Store(int64(len(f.seen)))
		began := time.Now()
		f.wrote.Store(int64(began.Sub(f.base)))
		if err := f.env.put(ctx, 0, &pb.PutRequest{Key: []byte("fanout"), Value: value}); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		puts.Add(time.Since(began))
		select {
		case <-f.all:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// follow counts the deliveries on one stream until the stream ends, and returns the reason.
func (f *fanout) follow(stream pb.Watch_WatchClient, seen *load.Histogram) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.Canceled {
			return fmt.Errorf("bench: watch cancelled: %s", r.CancelReason)
		}
		for range r.Events {
			seen.Add(time.Since(f.base) - time.Duration(f.wrote.Load()))
			if f.pending.Add(-1) == 0 {
				f.all <- struct{}{}
			}
		}
	}
}
