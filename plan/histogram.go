package plan

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// A Bin counts the durations that are at most Upper but longer than the Upper of the previous bin.
type Bin struct {
	Upper time.Duration
	Count float64
}

// A Histogram is a distribution of measured durations. The zero value is empty, and represents an
// operation that takes no time.
type Histogram struct {
	bins  []Bin     // sorted by Upper
	below []float64 // cumulative number of durations, up to and including each bin
}

// NewHistogram returns a histogram with the given bins, which can be in any order.
func NewHistogram(bins []Bin) (Histogram, error) {
	h := Histogram{bins: slices.Clone(bins)}
	slices.SortStableFunc(h.bins, func(a, b Bin) int { return cmp.Compare(a.Upper, b.Upper) })
	sum := 0.0
	for _, b := range h.bins {
		err := bounded(
			span("upper edge of a bin", b.Upper),
		)
		if err != nil {
			return Histogram{}, err
		}
		if err := finite(number("count of a bin", b.Count)); err != nil {
			return Histogram{}, err
		}
		sum += b.Count
		h.below = append(h.below, sum)
	}
	return h, nil
}

// ReadHistogram reads lines of the form "upper_ms,count". count is the number of durations that are
// at most upper_ms milliseconds and not already counted in a line with a smaller upper_ms. Numbers
// can have decimals. Empty lines, lines that begin with #, and a single header line
// "upper_ms,count" are skipped.
func ReadHistogram(r io.Reader) (Histogram, error) {
	var bins []Bin
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || strings.HasPrefix(line, "upper_ms") {
			continue
		}
		left, right, ok := strings.Cut(line, ",")
		upper, err := strconv.ParseFloat(strings.TrimSpace(left), 64)
		count, err2 := strconv.ParseFloat(strings.TrimSpace(right), 64)
		if !ok || err != nil || err2 != nil || math.IsNaN(upper) || upper >= math.MaxInt64/1e6 {
			return Histogram{}, inputErrorf("histogram",
				`use lines "upper_ms,count", such as "2.5,1800"`,
				"has %q on line %d", line, n)
		}
		bins = append(bins, Bin{time.Duration(upper * float64(time.Millisecond)), count})
	}
	if err := lines.Err(); err != nil {
		return Histogram{}, fmt.Errorf("plan: read a histogram: %w", err)
	}
	h, err := NewHistogram(bins)
	if err == nil && h.Count() == 0 {
		err = inputErrorf("histogram", `use lines "upper_ms,count", such as "2.5,1800"`,
			"counts nothing")
	}
	return h, err
}

// Write writes the histogram in the format that ReadHistogram reads.
func (h Histogram) Write(w io.Writer) error {
	text := []byte("upper_ms,count\n")
	for _, b := range h.bins {
		text = strconv.AppendFloat(text, float64(b.Upper)/float64(time.Millisecond), 'f', -1, 64)
		text = append(text, ',')
		text = strconv.AppendFloat(text, b.Count, 'f', -1, 64)
		text = append(text, '\n')
	}
	_, err := w.Write(text)
	return err
}

// Plus returns the sum of h and o, with the counts of o multiplied by times.
func (h Histogram) Plus(o Histogram, times float64) (Histogram, error) {
	bins := slices.Clone(h.bins)
	for _, b := range o.bins {
		bins = append(bins, Bin{b.Upper, b.Count * times})
	}
	return NewHistogram(bins)
}

// Count returns the number of durations.
func (h Histogram) Count() float64 {
	if len(h.below) == 0 {
		return 0
	}
	return h.below[len(h.below)-1]
}

// Max returns the upper bound of the last non-empty bin.
func (h Histogram) Max() time.Duration {
	for _, b := range slices.Backward(h.bins) {
		if b.Count > 0 {
			return b.Upper
		}
	}
	return 0
}

// Above returns the fraction of durations that may be longer than d. These are the durations in
// bins whose Upper is above d.
func (h Histogram) Above(d time.Duration) float64 {
	share, _ := h.above(d)
	return share
}

// above is like Above, but also returns the shortest duration for which the fraction is the same.
func (h Histogram) above(d time.Duration) (share float64, from time.Duration) {
	n := h.Count()
	if n == 0 {
		return 0, 0
	}
	i := sort.Search(len(h.bins), func(i int) bool { return h.bins[i].Upper > d })
	if i == 0 {
		return 1, 0
	}
	return (n - h.below[i-1]) / n, h.bins[i-1].Upper
}

// Quantile returns the smallest upper bound such that at least a fraction q of all durations are
// within it.
func (h Histogram) Quantile(q float64) time.Duration {
	for i, b := range h.bins {
		if b.Count > 0 && h.below[i] >= q*h.Count() {
			return b.Upper
		}
	}
	return h.Max()
}

// Unseen returns an upper bound, with 95% confidence, on the fraction of durations that are longer
// than all counted ones. For n counted durations it is 3/n (the rule of three).
func (h Histogram) Unseen() float64 {
	if n := h.Count(); n > 3 {
		return 3 / n
	}
	return 1
}
