package load

import (
	"iter"
	"math/bits"
	"time"
)

// subBits determines the precision of a Histogram. Each power of two is divided into 2^subBits
// steps, so quantiles are at most 1/128 too large.
const subBits = 7

// A Histogram counts durations. The zero value is empty. It is not safe for concurrent use.
// Instead, give each caller its own Histogram and merge them.
type Histogram struct {
	counts []uint32
	total  uint64
	sum    time.Duration
	max    time.Duration
}

// Add counts d. A negative duration counts as zero.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	i := slot(uint64(d))
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]uint32, i+1-len(h.counts))...)
	}
	h.counts[i]++
	h.total++
	h.sum += d
	h.max = max(h.max, d)
}

// Merge adds the counts of o.
func (h *Histogram) Merge(o *Histogram) {
	if n := len(o.counts) - len(h.counts); n > 0 {
		h.counts = append(h.counts, make([]uint32, n)...)
	}
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.total += o.total
	h.sum += o.sum
	h.max = max(h.max, o.max)
}

// Count returns the number of durations that have been added.
func (h *Histogram) Count() uint64 { return h.total }

// Bins yields the upper bound and the count of each non-empty step, in ascending order.
func (h *Histogram) Bins() iter.Seq2[time.Duration, uint32] {
	return func(yield func(time.Duration, uint32) bool) {
		for i, c := range h.counts {
			if c > 0 && !yield(time.Duration(slotTop(i)), c) {
				return
			}
		}
	}
}

// Max returns the longest duration.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the duration that a fraction q of all durations do not exceed. It returns 0 if h
// is empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := min(uint64(q*float64(h.total)), h.total-1)
	var seen uint64
	for i, c := range h.counts {
		seen += uint64(c)
		if seen > rank {
			return min(time.Duration(slotTop(i)), h.max)
		}
	}
	return h.max
}

// slot returns the index of the counter for a value. Each value below 2^subBits has its own
// counter. Above that, each power of two has 2^subBits counters.
func slot(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return (shift+1)<<subBits + int(v>>shift) - 1<<subBits
}

// slotTop returns the largest value that belongs to a slot.
func slotTop(i int) uint64 {
	if i < 1<<subBits {
		return uint64(i)
	}
	shift := i>>subBits - 1
	return (uint64(i&(1<<subBits-1))+1<<subBits+1)<<shift - 1
}
