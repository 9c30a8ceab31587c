package bench

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// TestSilence checks how ends are counted: from the last renewal, with those
// that never came, and none before its time.
func TestSilence(t *testing.T) {
	base := time.Now()
	bury := func(ends ...time.Duration) (*graveyard, []time.Time) {
		g := &graveyard{base: base, gone: make([]atomic.Int64, len(ends))}
		sent := make([]time.Time, len(ends))
		for i, d := range ends {
			sent[i] = base.Add(time.Second)
			if d != 0 {
				g.gone[i].Store(int64(time.Second + d))
			}
		}
		return g, sent
	}
	var s silence
	g, sent := bury(5100*time.Millisecond, 0, 6*time.Second)
	if err := s.count(g, sent); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.ended, sample{5100 * time.Millisecond, 6 * time.Second}) || s.left != 1 {
		t.Errorf("%+v", s)
	}
	if err := s.count(bury(4999 * time.Millisecond)); err == nil {
		t.Error("a lease may end before its TTL")
	}
}
