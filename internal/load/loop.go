package load

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// ValueSize is the size in bytes of the values written by puts.
const ValueSize = 128

// Millis converts a duration to milliseconds for reports.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// An Op performs operation number i on behalf of a caller.
type Op func(ctx context.Context, caller, i int) error

// Spread distributes n numbered operations among concurrent callers. It stops at the first error.
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

// Parallel runs f in n goroutines and waits for all of them. If h is not nil, it merges their
// histograms into h. It returns only the first error, because a failing server causes hundreds of
// them.
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
