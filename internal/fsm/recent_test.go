package fsm

import "testing"

// At least as many are kept as are to be, and at most a piece more; and no more bytes than there
// may be, but for a piece.
func TestRecent(t *testing.T) {
	for _, c := range []struct {
		most, size, pieces, least, top int
	}{
		{4, 1, 1, 4, 5},
		{16, 1, 2, 16, 18},
		{8192, 1, 512, 8192, 8192 + 512},
		{1 << 20, recentBytes / 8, 512, 9, 9}, // eight are as much as may be, and the one that was begun
	} {
		r := recent[int]{most: c.most}
		least, top := c.most, 0
		for n := range 3 * min(c.most, 10_000) {
			dropped := r.push(n, int64(c.size))
			top = max(top, r.kept)
			if len(dropped) > 0 {
				least = min(least, r.kept)
			}
			if got := r.last(1); len(got) != 1 || got[0] != n {
				t.Fatalf("the last of %d is %v", n, got)
			}
		}
		if r.chunkLen() != c.pieces || least < c.least || top != c.top {
			t.Errorf("of %d: at least %d and at most %d, in pieces of %d; want %+v", c.most, least, top,
				r.chunkLen(), c)
		}
		if got := r.last(0); len(got) != 0 {
			t.Errorf("none of the last: %v", got)
		}
	}
	if got := new(recent[int]).last(0); len(got) != 0 {
		t.Errorf("the last of none: %v", got)
	}
}
