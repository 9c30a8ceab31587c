package wheel

import "testing"

// TestPortions checks that if many entries are due at the same instant, each Advance fires at most
// as many as it is allowed to. Until all have fired, Next returns the current instant. Entries that
// only move to a lower level count as well.
func TestPortions(t *testing.T) {
	const entries, most = 100, 30
	w := New(0)
	for h := range uint32(entries) {
		w.Add(h, 70) // on the second level; all move down at 64
	}
	var fired int
	fire := func(uint32) { fired++ }
	for _, c := range []struct {
		now  int64
		want int
		next int64
	}{
		{64, 0, 64},
		{64, 0, 64},
		{64, 0, 64},
		{64, 0, 70},
		{70, 30, 70},
		{70, 60, 70},
		{71, 90, 71},
		{80, 100, 80},
	} {
		w.Advance(c.now, most, fire)
		next, ok := w.Next()
		if fired != c.want || next != c.next || ok != (w.Len() > 0) || w.Len() != entries-fired {
			t.Errorf("at %d %d have fired, %d are left, next is %d, %v; want %d, next %d",
				c.now, fired, w.Len(), next, ok, c.want, c.next)
		}
		if err := w.checkInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	if w.behind() {
		t.Error("all have fired, and the wheel is behind")
	}
}
