// Package backoff computes the delays between attempts.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Delay returns how long to wait after the given number of consecutive failures. The delay starts
// at about first, doubles with each failure, and never exceeds most. It has jitter, so that clients
// that failed at the same time do not retry at the same time.
func Delay(failures int, first, most time.Duration) time.Duration {
	d := min(first<<min(failures, 20), most)
	return d/2 + rand.N(max(d/2, 1))
}

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
