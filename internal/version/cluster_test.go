package version

import "testing"

// TestNames checks that each cluster version has its own name, and can be looked up by it. Other
// names match no version.
func TestNames(t *testing.T) {
	for v := Oldest; v <= Newest; v++ {
		for _, text := range []string{Name(v), "v" + Name(v), Semantic(v), Name(v) + ".7"} {
			if got := Parse(text); got != v {
				t.Errorf("%s is %d, want %d", text, got, v)
			}
		}
	}
	for _, text := range []string{"", "0", ".", "v", "3.6.0", "x.y", "0.1x"} {
		if got := Parse(text); got != 0 {
			t.Errorf("%q is %d", text, got)
		}
	}
	if got := Name(200); got != "number 200" || Semantic(200) != "" || Semantic(0) != "" {
		t.Errorf("a version that nobody knows is called %s, %q", got, Semantic(200))
	}
}

func TestRange(t *testing.T) {
	for _, c := range []struct {
		r     Range
		v     byte
		known bool
		has   bool
	}{
		{Range{}, 0, false, false},
		{Range{}, 1, false, false},
		{Range{2, 1}, 1, false, false},
		{Range{0, 1}, 1, false, false},
		{Range{1, 1}, 1, true, true},
		{Range{1, 2}, 2, true, true},
		{Range{1, 2}, 3, true, false},
		{Range{2, 3}, 1, true, false},
		{Range{2, 3}, 0, true, false},
	} {
		if c.r.Known() != c.known || c.r.Has(c.v) != c.has {
			t.Errorf("%v: known %v, has %d %v", c.r, c.r.Known(), c.v, c.r.Has(c.v))
		}
	}
	first, later := Range{1, 1}, Range{1, 200}
	if first.String() != "0.1" || later.String() != "0.1 to number 200" {
		t.Error(first, later)
	}
}
