package directory

import (
	"math/rand/v2"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/test/tier"
)

// toyKeys contains all keys used in these tests. Some differ only in trailing zero bytes, so that
// single keys can be adjacent.
var toyKeys = func() (keys []string) {
	for c := 'a'; c <= 'h'; c++ {
		keys = append(keys, string(c), string(c)+"\x00", string(c)+"\x00\x00", string(c)+"x")
	}
	return keys
}()

func randomRange(rng *rand.Rand) keyrange.Range {
	r := keyrange.Range{Key: toyKeys[rng.IntN(len(toyKeys))]}
	switch rng.IntN(6) {
	case 0, 1:
		r.End = toyKeys[rng.IntN(len(toyKeys))]
	case 2:
		if rng.IntN(8) == 0 {
			r.End = keyrange.NoEnd
		}
	}
	return r
}

// TestSpansTwin compares a set of ranges with a set of keys under random additions and removals.
func TestSpansTwin(t *testing.T) {
	for seed := range uint64(tier.Budget(40, 200)) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var s spans
		twin := make(map[string]bool)
		for step := range 200 {
			r, add := randomRange(rng), rng.IntN(2) == 0
			if add {
				s.add(r)
			} else {
				s.remove(r)
			}
			if err := s.checkInvariants(); err != nil {
				t.Fatal(err)
			}
			for _, k := range toyKeys {
				if r.Contains(k) {
					twin[k] = add
				}
				if got := s.overlaps(keyrange.Range{Key: k}); got != twin[k] {
					t.Fatalf("seed %d, step %d: %q (add %v), then %q is in: %v", seed, step, r, add, k, got)
				}
			}
			q := randomRange(rng)
			some := false
			for _, k := range toyKeys {
				some = some || q.Contains(k) && twin[k]
			}
			// Ranges also contain keys that are not in toyKeys, so overlaps can be true even if no
			// toy key is shared.
			if some && !s.overlaps(q) {
				t.Fatalf("seed %d, step %d: %q does not overlap", seed, step, q)
			}
		}
	}
}
