package replica

import (
	"slices"
	"testing"
)

// TestInflight checks that the log alone determines the outcome of this member's entries, for
// entries of two terms.
func TestInflight(t *testing.T) {
	a, b, c := &Proposal{}, &Proposal{}, &Proposal{}
	entries := func() inflight {
		return inflight{
			{index: 5, term: 2, number: 1, proposals: []*Proposal{a}},
			{index: 6, term: 2, number: 2, proposals: []*Proposal{b}},
			{index: 7, term: 4, number: 1, proposals: []*Proposal{c}},
		}
	}
	for _, test := range []struct {
		name        string
		index, term uint64
		found, lost []*Proposal
		left        int
	}{
		{"its own", 5, 2, []*Proposal{a}, nil, 2},
		{"none of this member", 4, 2, nil, nil, 3},
		{"one of a later term: earlier ones are lost", 7, 4, []*Proposal{c}, []*Proposal{a, b}, 0},
		{"another leader's entry at its index", 6, 3, nil, []*Proposal{a, b}, 1},
		{"another leader's entry after all", 8, 5, nil, []*Proposal{a, b, c}, 0},
	} {
		f := entries()
		found, lost := f.take(test.index, test.term)
		if !slices.Equal(found, test.found) || !slices.Equal(lost, test.lost) || len(f) != test.left {
			t.Errorf("%s: found %v, lost %v, %d left", test.name, found, lost, len(f))
		}
	}
	f := entries()
	if all := f.swallow(6); !slices.Equal(all, []*Proposal{a, b}) || len(f) != 1 {
		t.Errorf("a snapshot at 6 covers %v, %d left", all, len(f))
	}
	if all := f.of(4); !slices.Equal(all, []*Proposal{c}) || len(f.of(2)) != 0 {
		t.Errorf("of term 4: %v", all)
	}
}
