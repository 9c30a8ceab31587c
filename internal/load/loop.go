package load

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// ValueSize is the size of the values in puts, in bytes.
const ValueSize = 128

// Millis converts a duration to milliseconds, as in reports.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// An Op is one operation of one caller, with a number.
type Op func(ctx context.Context, caller, i int) error

// Spread makes callers do n operations together, each with its own number. The first error ends it.
func Spread(ctx context.Context, callers, n int, f Op) error {
	var next atomic.Int64
	var failed atomic.Bool
	return Parallel(callers, func(caller int, _ *Histogram) error {
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

// Parallel runs f in n goroutines, waits for all of them, and merges their histograms into h, if
// that is not nil. It returns only the first error: if a server fails, there are hundreds.
func Parallel(n int, f func(caller int, mine *Histogram) error, h *Histogram) error {
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
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
