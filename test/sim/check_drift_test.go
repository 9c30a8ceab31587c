package sim

import (
	"testing"
	"testing/cryptotest"
)

// TestDriftBeyondBound checks that clocks beyond the holders' bound break L1, and that the checkers
// detect it. Like a planted fault, this proves that the promise depends on the bound.
func TestDriftBeyondBound(t *testing.T) {
	broken := 0
	for seed := uint64(1); seed <= 6 && broken == 0; seed++ {
		t.Run("", func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			p := Run(Options{Seed: seed, Duration: Millisecond}).Profile
			p.Drift, p.RealDrift, p.Margin, p.Calm = 1e-3, 0.2, 0, 20*Second
			r := Run(Options{Seed: seed, Duration: 40 * Second, Profile: &p})
			if r.InBound {
				t.Fatal("the run considers its clocks within the bound")
			}
			limits := p.Limits()
			limits.Search = 0
			if id := firstOf(Check(r.History, limits), "L1", "L4"); id != "" {
				t.Errorf("%s counts as a violation although the clocks exceed the bound", id)
			}
			r.InBound = true
			if firstOf(Check(r.History, limits), "L1", "L4") != "" {
				broken++
			}
		})
	}
	if broken == 0 {
		t.Error("clocks 20 percent apart broke nothing")
	}
}

// firstOf returns the first of the given invariants that a report lists as broken.
func firstOf(r *Report, ids ...string) string {
	for _, v := range r.Violations {
		for _, id := range ids {
			if v.ID == id {
				return id
			}
		}
	}
	return ""
}
