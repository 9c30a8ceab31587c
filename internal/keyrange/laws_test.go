package keyrange

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// short returns all keys of up to three bytes from a small set. The set includes the smallest and
// the largest byte.
func short() []string {
	keys := []string{""}
	for i := 0; i < len(keys); i++ {
		for _, b := range []string{"\x00", "a", "b", "\xfe", "\xff"} {
			if len(keys[i]) < 3 {
				keys = append(keys, keys[i]+b)
			}
		}
	}
	return keys
}

// TestOfPrefix checks that the range of a prefix contains exactly the keys that begin with it, and
// is never empty.
func TestOfPrefix(t *testing.T) {
	keys := short()
	for _, prefix := range keys {
		r := OfPrefix(prefix)
		for _, k := range keys {
			if got := r.Contains(k); got != strings.HasPrefix(k, prefix) {
				t.Errorf("the range %q of the prefix %q contains %q: %v", r, prefix, k, got)
			}
		}
		if r.Empty() {
			t.Errorf("the range %q of the prefix %q is empty", r, prefix)
		}
	}
}

// TestReaches checks that a range reaches the keys that it contains and all keys before them. An
// empty range still has an end, so it reaches the keys before that end.
func TestReaches(t *testing.T) {
	for _, r := range toyRanges() {
		for _, k := range probes {
			want := slices.ContainsFunc(probes, func(p string) bool { return p >= k && r.Contains(p) })
			if got := r.Reaches(k); got != want && !r.Empty() {
				t.Errorf("%q reaches %q: %v", r, k, got)
			}
			if r.Empty() && r.Reaches(k) != (k < r.End) {
				t.Errorf("%q, which is empty, reaches %q: %v", r, k, r.Reaches(k))
			}
		}
	}
}

// TestCompareIsAnOrder checks that ranges have a total order in which different ranges are never
// equal, so that a tree can tell them apart.
func TestCompareIsAnOrder(t *testing.T) {
	all := toyRanges()
	slices.SortFunc(all, Range.Compare)
	for i, r := range all {
		for j, o := range all {
			if got := r.Compare(o); got != cmp.Compare(i, j) {
				t.Errorf("%q and %q, %d and %d in order: %d", r, o, i, j, got)
			}
		}
		if i > 0 && r.Key < all[i-1].Key {
			t.Errorf("%q comes after %q", r, all[i-1])
		}
	}
}

// TestOverlapAndCover checks how overlapping and covering are related. A covered range overlaps
// unless it is empty. Overlapping is symmetric. Two ranges that cover each other have the same
// keys, so a third range overlaps both or neither.
func TestOverlapAndCover(t *testing.T) {
	all := toyRanges()
	for _, r := range all {
		if !r.Covers(r) || r.Overlaps(r) == r.Empty() || !All.Covers(r) {
			t.Errorf("%q: covers itself %v, overlaps itself %v, all covers it %v", r, r.Covers(r),
				r.Overlaps(r), All.Covers(r))
		}
		for _, o := range all {
			if r.Overlaps(o) != o.Overlaps(r) {
				t.Errorf("%q overlaps %q: %v, and the other way %v", r, o, r.Overlaps(o), o.Overlaps(r))
			}
			if r.Covers(o) && !o.Empty() && !r.Overlaps(o) {
				t.Errorf("%q covers %q, and does not overlap it", r, o)
			}
			if !r.Covers(o) {
				continue
			}
			for _, x := range all {
				if x.Overlaps(o) && !x.Overlaps(r) {
					t.Errorf("%q covers %q, and %q overlaps only the smaller one", r, o, x)
				}
				if o.Covers(x) && !r.Covers(x) {
					t.Errorf("%q covers %q, and does not cover %q in it", r, o, x)
				}
			}
		}
	}
}

// TestJoinIsCanonical checks that joining spans gives the same result in any order, and that
// joining again changes nothing. Two lists of the same keys are therefore equal once joined.
func TestJoinIsCanonical(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	all := toyRanges()
	for range 2000 {
		list := make([]Span, rng.IntN(6))
		for i := range list {
			list[i] = all[rng.IntN(len(all))].Span()
		}
		joined := Join(slices.Clone(list))
		again := Join(slices.Clone(joined))
		if !slices.Equal(again, joined) {
			t.Fatalf("%q joined is %q, and joined again %q", list, joined, again)
		}
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if other := Join(slices.Clone(list)); !slices.Equal(other, joined) {
			t.Fatalf("%q joined is %q, in another order %q", list, other, joined)
		}
	}
}

// TestLater checks that an open end sorts after every other end.
func TestLater(t *testing.T) {
	ends := append(toyKeys[1:], "") // in ascending order
	for i, a := range ends {
		for j, b := range ends {
			if got := Later(a, b); got != ends[max(i, j)] {
				t.Errorf("the later of %q and %q: %q", a, b, got)
			}
			if got := earlier(a, b); got != ends[min(i, j)] {
				t.Errorf("the earlier of %q and %q: %q", a, b, got)
			}
		}
	}
}
