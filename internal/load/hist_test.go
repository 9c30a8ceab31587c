package load

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestHistogram compares quantiles with those of a sorted slice: they are never below the true
// value, and at most 1/128 above it.
func TestHistogram(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h, part Histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(rng.ExpFloat64() * float64(rng.IntN(int(10*time.Millisecond))))
		all = append(all, d)
		if i%2 == 0 {
			h.Add(d)
		} else {
			part.Add(d)
		}
	}
	h.Merge(&part)
	slices.Sort(all)
	if h.Count() != uint64(len(all)) || h.Max() != all[len(all)-1] {
		t.Fatalf("count %d, max %v", h.Count(), h.Max())
	}
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[min(int(q*float64(len(all))), len(all)-1)]
		got := h.Quantile(q)
		if got < want || got > want+want/128 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

// TestSlots checks that there are no gaps between slots, up to the largest duration.
func TestSlots(t *testing.T) {
	for i := range slot(1<<63 - 1) {
		top := slotTop(i)
		if slot(top) != i || slot(top+1) != i+1 {
			t.Fatalf("slot %d ends at %d, which is in %d, and the next in %d",
				i, top, slot(top), slot(top+1))
		}
	}
}

// TestEmptyHistogram checks that an empty histogram has no quantiles, and that a negative duration,
// from a clock that went backward, counts as zero.
func TestEmptyHistogram(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Max() != 0 {
		t.Error("an empty histogram has quantiles")
	}
	h.Add(-time.Second)
	if h.Quantile(1) != 0 || h.Count() != 1 {
		t.Error("a negative duration does not count as zero")
	}
}
