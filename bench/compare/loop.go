package compare

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/load"
)

// A measure accumulates the measured parts of a workload.
type measure struct {
	hist    load.Histogram
	elapsed time.Duration
	cpu     time.Duration
}

// result converts the sums to figures per second and per operation.
func (m *measure) result() Result {
	n := float64(m.hist.Count())
	if n == 0 {
		return Result{}
	}
	return Result{
		Rate: n / m.elapsed.Seconds(),
		P50:  load.Millis(m.hist.Quantile(0.50)),
		P99:  load.Millis(m.hist.Quantile(0.99)),
		CPU:  float64(m.cpu.Microseconds()) / n,
	}
}

// during runs f, and adds the duration and the server's CPU time to m.
func (m *measure) during(s *Server, f func() error) error {
	before, err := s.Usage()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := f(); err != nil {
		return err
	}
	m.elapsed += time.Since(began)
	after, err := s.Usage()
	if err != nil {
		return err
	}
	m.cpu += after.CPU - before.CPU
	return nil
}

// closedLoop runs callers that repeat an operation until the time is up. Each waits for the answer
// before it continues. The latencies are added to h. The first error ends the loop.
func closedLoop(
	ctx context.Context, callers int, d time.Duration, h *load.Histogram, f load.Op,
) error {
	var stop atomic.Bool
	timer := time.AfterFunc(d, func() { stop.Store(true) })
	defer timer.Stop()
	return load.Parallel(callers, func(caller int, mine *load.Histogram) error {
		for i := 0; !stop.Load(); i++ {
			began := time.Now()
			if err := f(ctx, caller, i); err != nil {
				stop.Store(true)
				return err
			}
			mine.Add(time.Since(began))
		}
		return nil
	}, h)
}

// openLoop starts n operations at a steady pace, whether or not earlier operations have completed.
// Each latency is measured from the time the operation was due, so a stall counts for every
// operation that it delays.
func openLoop(ctx context.Context, n int, every time.Duration, h *load.Histogram, f load.Op) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error // guarded by mu, like h
	began := time.Now()
	tick := time.NewTicker(min(every, time.Millisecond))
	defer tick.Stop()
	for i := 0; i < n; {
		due := began.Add(time.Duration(i) * every)
		if time.Now().Before(due) {
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
				n = i
				continue
			}
		}
		k := i
		i++
		wg.Go(func() {
			err := f(ctx, k, k)
			mu.Lock()
			defer mu.Unlock()
			h.Add(time.Since(due))
			if err != nil && failed == nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return failed
}
