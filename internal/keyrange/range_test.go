package keyrange

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Some of these keys are direct successors of others. The probes also include keys between and
// beyond them, so that different ranges can be told apart.
var (
	toyKeys = []string{"", "a", "a\x00", "a\x00\x00", "aa", "b", "b\x00", "c"}
	probes  = append(slices.Clone(toyKeys),
		"\x00", "a\x00a", "a\x01", "ab", "b\x00\x00", "bb", "c\x00", "d")
)

// toyRanges returns all ranges between toy keys, including empty ones.
func toyRanges() (ranges []Range) {
	for _, k := range toyKeys {
		ranges = append(ranges, Range{k, ""}, Range{k, NoEnd})
		for _, e := range toyKeys[1:] {
			ranges = append(ranges, Range{k, e})
		}
	}
	return ranges
}

// TestRangesKeyByKey compares the relations between two ranges, and between two spans, with a check
// of each key.
func TestRangesKeyByKey(t *testing.T) {
	for _, r := range toyRanges() {
		for _, o := range toyRanges() {
			overlaps, covers, empty := false, true, true
			for _, k := range probes {
				if o.Contains(k) {
					empty = false
					covers = covers && r.Contains(k)
					overlaps = overlaps || r.Contains(k)
				}
			}
			if got := r.Overlaps(o); got != overlaps {
				t.Errorf("%q overlaps %q: %v", r, o, got)
			}
			if got := r.Covers(o); got != covers {
				t.Errorf("%q covers %q: %v", r, o, got)
			}
			if got := o.Empty(); got != empty {
				t.Errorf("%q is empty: %v", o, got)
			}
			if a, b := r.Span(), o.Span(); !r.Empty() && !o.Empty() {
				if got := a.Overlaps(b); got != overlaps {
					t.Errorf("%q overlaps %q: %v", a, b, got)
				}
				if got := a.Covers(b); got != covers {
					t.Errorf("%q covers %q: %v", a, b, got)
				}
			}
		}
	}
}

// TestSpanOfRange checks that a span contains the same keys as its range, and that converting it
// back preserves them.
func TestSpanOfRange(t *testing.T) {
	for _, r := range toyRanges() {
		s := r.Span()
		if s.Empty() != r.Empty() {
			t.Errorf("%q: as a span it is empty: %v", r, s.Empty())
		}
		if r.Empty() {
			continue
		}
		back := s.Range()
		for _, k := range probes {
			if in := r.Contains(k); s.Has(k) != in || back.Contains(k) != in {
				t.Errorf("%q has %q: %v; the span %v, the range of it %v", r, k, in, s.Has(k),
					back.Contains(k))
			}
		}
		if s.Single() != (back.End == "") {
			t.Errorf("%q: single: %v, and back %q", r, s.Single(), back)
		}
	}
}

// spanKeys returns the probes that lie in any of the given spans.
func spanKeys(list ...Span) (keys []string) {
	for _, k := range probes {
		if slices.ContainsFunc(list, func(s Span) bool { return s.Has(k) }) {
			keys = append(keys, k)
		}
	}
	return keys
}

// TestSpansKeyByKey checks, key by key, what remains after joining spans and cutting a span out of
// others.
func TestSpansKeyByKey(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	all := toyRanges()
	pick := func() Span { return all[rng.IntN(len(all))].Span() }
	for range 5000 {
		list, o := []Span{pick(), pick(), pick()}, pick()
		joined := Join(slices.Clone(list))
		if got, want := spanKeys(joined...), spanKeys(list...); !slices.Equal(got, want) {
			t.Fatalf("%q joined: %q has %q, want %q", list, joined, got, want)
		}
		for i, s := range joined {
			if s.Empty() || i > 0 && (joined[i-1].To == "" || s.From <= joined[i-1].To) {
				t.Fatalf("%q joined: %q, which are not apart", list, joined)
			}
		}
		if o.Empty() {
			continue
		}
		var left, both []string
		for _, k := range spanKeys(joined...) {
			if o.Has(k) {
				both = append(both, k)
			} else {
				left = append(left, k)
			}
		}
		before := slices.Clone(joined)
		cut := Without(joined, o)
		if got := spanKeys(cut...); !slices.Equal(got, left) {
			t.Fatalf("%q without %q: has %q, want %q", joined, o, got, left)
		}
		if slices.ContainsFunc(cut, Span.Empty) || !slices.Equal(joined, before) {
			t.Fatalf("%q without %q: %q, and the list is %q now", before, o, cut, joined)
		}
		var common []Span
		for _, s := range joined {
			if s.Overlaps(o) {
				common = append(common, s.Common(o))
			}
		}
		if got := spanKeys(common...); !slices.Equal(got, both) {
			t.Fatalf("%q and %q have in common %q, want %q", joined, o, got, both)
		}
	}
}
