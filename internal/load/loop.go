package load

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// ValueSize is the size of the values that are put, in bytes.
const ValueSize = 128

// Millis is a duration in milliseconds, as reports show it.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// An Op is one operation of one caller, with a number.
type Op func(ctx context.Context, caller, i int) error

// Spread lets callers do n operations between them, numbered from 0, each
// once. The first error ends it.
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

// Parallel runs f in n goroutines, waits for all and merges their histograms
// into h, if there is one. It returns the first error: a dead server makes hundreds.
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
