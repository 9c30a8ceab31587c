package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A measure adds up the measured parts of a workload.
type measure struct {
	hist    Histogram
	elapsed time.Duration
	cpu     time.Duration
}

// result turns sums into figures per second and per operation.
func (m *measure) result() Result {
	n := float64(m.hist.Count())
	if n == 0 {
		return Result{}
	}
	return Result{
		Rate: n / m.elapsed.Seconds(),
		P50:  ms(m.hist.Quantile(0.50)),
		P99:  ms(m.hist.Quantile(0.99)),
		CPU:  float64(m.cpu.Microseconds()) / n,
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// during runs f and adds its duration and the server's CPU time.
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

// An op is one operation of one caller; i counts the caller's operations.
type op func(ctx context.Context, caller, i int) error

// closedLoop lets callers repeat an operation, each waiting for its answer,
// until the time is up, and adds the latencies to h. The first error ends it.
func closedLoop(ctx context.Context, callers int, d time.Duration, h *Histogram, f op) error {
	var stop atomic.Bool
	timer := time.AfterFunc(d, func() { stop.Store(true) })
	defer timer.Stop()
	return parallel(callers, func(caller int, mine *Histogram) error {
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

// spread lets callers do n operations between them, numbered from 0, each
// once.
func spread(ctx context.Context, callers, n int, f op) error {
	var next atomic.Int64
	var failed atomic.Bool
	return parallel(callers, func(caller int, _ *Histogram) error {
		for !failed.Load() {
			i := int(next.Add(1)) - 1
			if i >= n {
				return nil
			}
			if err := f(ctx, caller, i); err != nil {
				failed.Store(true)
				return err
			}
		}
		return nil
	}, nil)
}

// parallel runs f in n goroutines, waits for all and merges their histograms
// into h.
func parallel(n int, f func(caller int, mine *Histogram) error, h *Histogram) error {
	errs := make([]error, n)
	hists := make([]Histogram, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i, &hists[i]) })
	}
	wg.Wait()
	if h != nil {
		for i := range hists {
			h.Merge(&hists[i])
		}
	}
	return errors.Join(firstOf(errs))
}

// firstOf is the first error that is not nil: a dead server makes hundreds.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
