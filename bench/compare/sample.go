package compare

import (
	"slices"
	"time"

	"leasehold.dev/internal/load"
)

// A sample holds a small number of durations. For large numbers, use a load.Histogram.
type sample []time.Duration

// quantile returns the smallest duration d such that at least a fraction q of all durations are at
// most d. It returns 0 for an empty sample.
func (s sample) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(q*float64(len(s))), len(s)-1)]
}

func (s sample) max() time.Duration { return s.quantile(1) }

// metrics returns three figures that summarize a sample, in milliseconds. For an even number of
// durations, the median is the mean of the middle two.
func (s sample) metrics(name string) []Metric {
	var values []float64
	for _, d := range s {
		values = append(values, load.Millis(d))
	}
	return []Metric{
		{name + " median", spreadOf(values).Median, "ms"},
		{name + " p90", load.Millis(s.quantile(0.90)), "ms"},
		{name + " max", load.Millis(s.max()), "ms"},
	}
}
