package server

import (
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// TestReliefBacksOff: snapshots that fail on a full disk are tried again after pauses that double,
// up to a bound. After one that is written, or when there is room, the pauses begin anew.
func TestReliefBacksOff(t *testing.T) {
	var b backOff
	var now lease.Instant
	// tries returns after how many seconds each of the next attempts comes.
	tries := func(n int) (pauses []int64) {
		for from := now; len(pauses) < n; now += 100 {
			if b.due(now) {
				pauses, from = append(pauses, int64(now-from)/1000), now
			}
		}
		return pauses
	}
	want := []int64{0, 30, 60, 120, 240, 480, 480, 480}
	if got := tries(len(want)); !slices.Equal(got, want) {
		t.Errorf("the pauses are %v s, want %v", got, want)
	}
	b.over()
	want = []int64{479, 30, 60}
	if got := tries(len(want)); !slices.Equal(got, want) {
		t.Errorf("afterwards the pauses are %v s, want %v", got, want)
	}
}
