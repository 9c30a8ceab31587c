package load

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
)

// TestSpread checks that each number is processed once, and that an error stops the run.
func TestSpread(t *testing.T) {
	hits := make([]int, 1000)
	err := Spread(t.Context(), 8, len(hits), func(_ context.Context, _, i int) error {
		hits[i]++
		return nil
	})
	if err != nil || slices.ContainsFunc(hits, func(n int) bool { return n != 1 }) {
		t.Errorf("hits %v, error %v", hits, err)
	}
	boom := errors.New("boom")
	err = Spread(t.Context(), 4, math.MaxInt, func(_ context.Context, _, i int) error { return boom })
	if !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
}
