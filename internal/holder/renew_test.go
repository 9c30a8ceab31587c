package holder

import (
	"testing"

	"leasehold.dev/lease"
)

// TestRenewAfter checks that a lease is renewed after the configured share of its TTL, or slightly
// earlier depending on its ID.
func TestRenewAfter(t *testing.T) {
	for share, most := range map[float64]lease.Instant{0: 3000, 0.5: 4500, 0.01: 90} {
		s := New(Config{Drift: -1, RenewAfter: share}, 0)
		s.Add(Held{ID: 1, TTL: ttl})
		if at, ok := s.Next(); !ok || at > most || at < most-most/jitterPart {
			t.Errorf("after %v of the TTL: to be renewed at %d, want about %d", share, at, most)
		}
	}
}
