package sim

import (
	"testing"
	"testing/cryptotest"
)

// unsteady returns a profile with no faults except stutters and swings.
func unsteady(seed uint64, end Time, s Scenario) *Profile {
	p := newWorld(Options{Seed: seed}).p
	p.Members, p.Clients, p.Tick, p.ElectionTicks = 3, 2, 100*Millisecond, 10
	p.Faults, p.Calm = 1000*end, 5*Second // other faults would occur after the end
	p.Delay, p.Sync, p.Think = Millisecond/2, Millisecond, 5*Second
	p.Loss, p.Repeat = 0, 0
	s.Adapt = true
	p.Scenario = s
	return &p
}

// elections returns the number of elections, not counting the first.
func elections(h *History) int {
	terms := make(map[uint64]bool)
	for _, r := range h.Roles {
		if r.Leading {
			terms[r.Term] = true
		}
	}
	return len(terms) - 1
}

// TestNeedlessElections checks that stuttering members and links with changing latency rarely cause
// an election, and that all promises hold. A member tolerates pauses of up to 300 ms from the
// start. It tolerates longer pauses once it has observed some.
func TestNeedlessElections(t *testing.T) {
	const end = 3 * Minute
	often := Scenario{Unsteady: Unsteady{Stutter: Second, Swing: 2 * Second}}
	for _, c := range []struct {
		name       string
		pause, far Time
		most       int // elections in three minutes
	}{
		{"short", 300 * Millisecond, 50 * Millisecond, 2},
		{"long", 600 * Millisecond, 50 * Millisecond, 5},
		{"far", 300 * Millisecond, 250 * Millisecond, 3},
	} {
		often.Unsteady.Pause, often.Unsteady.Far = c.pause, c.far
		for seed := range uint64(2) {
			cryptotest.SetGlobalRandom(t, seed)
			o := Try(Options{Seed: seed, Duration: end, Profile: unsteady(seed, end, often)})
			if o.Failed() {
				t.Errorf("%s, seed %d: %s", c.name, seed, o)
			}
			faults := len(o.Faults)
			t.Logf("%s, seed %d: %d faults, %d elections, %d members taken for hung", c.name, seed,
				faults, elections(o.History), o.Coverage["member taken for hung"])
			if n := elections(o.History); n > c.most || faults < 20 {
				t.Errorf("%s, seed %d: %d elections and %d faults", c.name, seed, n, faults)
			}
		}
	}
}
