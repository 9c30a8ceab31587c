package lease

import (
	"slices"
	"testing"
)

// TestSpreadOfPast checks that leases that would have ended before the promotion are spread over
// the seconds after it.
func TestSpreadOfPast(t *testing.T) {
	s := newSpreader(2, 100_000)
	var got []Instant
	for _, expiry := range []Instant{99_000, 90_000, 10, 100_000, 98_000} {
		got = append(got, s.spread(expiry))
	}
	if want := []Instant{99_000, 90_000, 101_000, 101_500, 102_000}; !slices.Equal(got, want) {
		t.Errorf("they end at %v, want %v", got, want)
	}
}
