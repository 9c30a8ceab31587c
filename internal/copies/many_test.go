package copies

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/keyrange"
)

// Goal: what an invalidation names is gone, and nothing else, if the copies fill many
// rows, were read in one piece, or were split into many. Method: keys are dropped at random, some
// hundreds at a time and a range among them, until none is left.
func TestManyTogether(t *testing.T) {
	held := keyrange.Range{Key: "k", End: "l"}
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, x := newSet(Config[pair]{
			Holds: []keyrange.Range{held}, MaxEntries: 1 << 20, MaxBytes: 1 << 30,
		})
		s.Opened(1)
		all, has := make([]pair, 2000), make(map[string]bool)
		for i := range all {
			all[i] = pair{fmt.Sprintf("k%04d", i), strings.Repeat("v", r.IntN(9))}
			if has[all[i].key] = true; seed%2 == 0 {
				one := keyrange.Range{Key: all[i].key}
				s.Complete(s.Begin(one), Answer[pair]{Term: 1, Values: all[i : i+1]})
			}
		}
		if seed%2 == 1 {
			s.Complete(s.Begin(held), Answer[pair]{Term: 1, Values: slices.Clone(all)})
		}
		for len(has) > 0 {
			from := r.IntN(len(all))
			drop := []keyrange.Range{{Key: all[from].key, End: all[min(from+r.IntN(40), 1999)].key}}
			for range 1 + r.IntN(400) {
				drop = append(drop, keyrange.Range{Key: all[r.IntN(len(all))].key})
			}
			s.Invalidate(1, 1, drop)
			for _, what := range drop {
				maps.DeleteFunc(has, func(k string, _ bool) bool { return what.Span().Has(k) })
			}
			checkMany(t, s, x, all, has)
		}
	}
}

// What has no end is dropped to its end, and gone from the index.
func TestWithoutEnd(t *testing.T) {
	held := keyrange.Range{Key: "b", End: keyrange.NoEnd}
	s, x := newSet(Config[pair]{Holds: []keyrange.Range{held}})
	s.Opened(1)
	want(t, "kept", fill(s, held, "b=1", "c=2", "d=3"), true)
	s.Invalidate(1, 1, []keyrange.Range{{Key: "c", End: keyrange.NoEnd}})
	want(t, "keys", shows(s, "b", "c", "d", "e"), "1???")
	want(t, "index", len(x.found), 1)
	fill(s, keyrange.Range{Key: "d"}, "d=3")
	fill(s, keyrange.Range{Key: "f"}, "f=5")
	s.Invalidate(1, 2, []keyrange.Range{{Key: "bb", End: keyrange.NoEnd}})
	want(t, "keys of several pieces", shows(s, "b", "bb", "d", "f"), "1???")
}

// What is not there costs nothing to drop, and readers keep the view: before what was read, between
// two pieces of it, and behind it.
func TestNothingToDrop(t *testing.T) {
	s, _ := newSet(Config[pair]{Holds: []keyrange.Range{all}})
	s.Opened(1)
	fill(s, keyrange.Range{Key: "c"}, "c=1")
	fill(s, keyrange.Range{Key: "e"}, "e=1")
	before := s.View()
	s.Invalidate(1, 1, []keyrange.Range{{Key: "b"}, {Key: "d"}, {Key: "f"}})
	want(t, "the view stays", s.View() == before, true)
}

// checkMany checks that a Set has just those keys, and its invariants.
func checkMany(t *testing.T, s *Set[pair], x *index, all []pair, has map[string]bool) {
	t.Helper()
	entries, bytes, before := 0, 0, ""
	for _, row := range s.view.rows {
		if len(row) == 0 || len(row) > rowMost {
			t.Fatalf("a row has %d pieces", len(row))
		}
		for _, p := range row {
			if p.From < before || p.Empty() || p.at.piece != p {
				t.Fatalf("piece %q comes after %q", p.Span, before)
			}
			weight := *p
			s.weigh(&weight)
			entries, bytes, before = entries+p.entries(), bytes+weight.bytes, p.To
		}
	}
	if e, b := s.Len(); e != entries || b != bytes {
		t.Fatalf("%d entries, %d bytes; counted %d, %d", e, b, entries, bytes)
	}
	for i := range all {
		k := all[i].key
		if v, _, known := s.View().Get(k); known != has[k] || known && v.value != all[i].value {
			t.Fatalf("%q: %v, known %v; want %v", k, v, known, has[k])
		}
		if _, there := x.found[k]; there != has[k] {
			t.Fatalf("%q is in the index: %v", k, there)
		}
	}
}
