package lease

import (
	"math"
	"testing"
)

// TestTimesAtTheirBounds checks that a lease with the shortest TTL can be silent for a moment
// before it is reported, and that times never exceed the largest instant.
func TestTimesAtTheirBounds(t *testing.T) {
	c := Config{}.withDefaults()
	if got := c.silence(4); got != 1 {
		t.Errorf("a lease of 4 ms is silent after %d ms", got)
	}
	for _, ttl := range []TTL{math.MaxInt64 - 6, math.MaxInt64 - 5, math.MaxInt64} {
		if got := Instant(5).after(ttl); got != math.MaxInt64 {
			t.Errorf("%d ms after 5 it is %d", ttl, got)
		}
	}
}

// catchUp moves a primary's clock and calls Advance until the primary has processed all leases due
// by then. It returns the number of steps.
func catchUp(l *Lessor, now Instant) (steps int) {
	for l.Advance(now); l.tracker.behind(); l.Advance(now) {
		steps++
	}
	return steps + 1
}
