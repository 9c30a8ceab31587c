package copies

import (
	"testing"

	"leasehold.dev/internal/keyrange"
)

// TestWithoutEnd checks that invalidating an open-ended range drops everything from its start on,
// and clears it from the index.
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

// TestNothingToDrop checks that invalidating keys that are not cached leaves the view unchanged,
// whether the keys come before, between or after the pieces.
func TestNothingToDrop(t *testing.T) {
	s, _ := newSet(Config[pair]{Holds: []keyrange.Range{all}})
	s.Opened(1)
	fill(s, keyrange.Range{Key: "c"}, "c=1")
	fill(s, keyrange.Range{Key: "e"}, "e=1")
	before := s.View()
	s.Invalidate(1, 1, []keyrange.Range{{Key: "b"}, {Key: "d"}, {Key: "f"}})
	want(t, "view unchanged", s.View() == before, true)
}
