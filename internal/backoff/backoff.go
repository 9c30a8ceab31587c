// Package backoff waits between attempts.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Delay returns how long to wait after this many failures in a row: about first, doubled with each
// failure up to most. It has jitter, so that clients that failed together do not retry together.
func Delay(failures int, first, most time.Duration) time.Duration {
	d := min(first<<min(failures, 20), most)
	return d/2 + rand.N(max(d/2, 1))
}

// Sleep waits for d, or returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
