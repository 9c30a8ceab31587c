package replica

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
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

// TestInflightIndex checks that a proposed entry gets its index when Raft appends it. It is
// withdrawn if Raft appends an empty entry instead.
func TestInflightIndex(t *testing.T) {
	f := inflight{{term: 3, number: 9, proposals: []*Proposal{{Command: &fsm.SetVersion{}}}}}
	entry := func(index, term uint64, data string) *raftpb.Entry {
		return &raftpb.Entry{Index: &index, Term: &term, Data: []byte(data)}
	}
	f.assign([]*raftpb.Entry{entry(10, 2, "another's"), entry(11, 3, "")}, 3)
	if f[0].index != 0 {
		t.Fatalf("index %d", f[0].index)
	}
	if n := f.first(20); n != 9 || !f.setsVersion() {
		t.Errorf("the first without an outcome has number %d", n)
	}
	f.assign([]*raftpb.Entry{entry(12, 3, "its own"), entry(13, 3, "another")}, 3)
	if f[0].index != 12 || f.unassigned() {
		t.Errorf("index %d", f[0].index)
	}
	f = append(f, batch{term: 3})
	if !f.unassigned() || len(f) != 1 || f.unassigned() {
		t.Errorf("%d entries left", len(f))
	}
	if n := (inflight{{term: 3}}).first(20); n != 20 {
		t.Errorf("a change of the membership has number %d", n)
	}
}

// TestUnassigned checks that only entries that Raft did not append are removed.
func TestUnassigned(t *testing.T) {
	for _, c := range []struct {
		list inflight
		want bool
		left int
	}{
		{nil, false, 0},
		{inflight{{}}, true, 0},
		{inflight{{index: 5}}, false, 1},
		{inflight{{index: 5}, {}}, true, 1},
	} {
		f := c.list
		if got := f.unassigned(); got != c.want || len(f) != c.left {
			t.Errorf("from %v: %v, %d left", c.list, got, len(f))
		}
	}
}
