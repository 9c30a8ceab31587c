package sim

import "testing"

// foundSeeds are seeds that found something, and what. A seed stands for the same run
// only as long as the world draws the same numbers, so the faults that they found
// have tests of their own where they were; these are run again because what was
// hard once may be so again.
var foundSeeds = []struct {
	seed uint64
	what string
}{
	{49, "L1: refresh while an entry that clears a checkpoint was on its way (replica)"},
	{35, "L2: leases overdue after a refresh that nobody had noted (sim)"},
	{59, "S2: of equal commands the wrong one was taken for missing (sim)"},
	{19182, "L1: a session outlived its valid until, by another incarnation of its ID (sim, T28)"},
	{526, "A1: a wait was let in by a certificate and judged by an older login (sim)"},
	{20385, "L7: links stayed slow because a member was added before they healed (sim)"},
}

// TestSeeds runs the seeds that found something once.
func TestSeeds(t *testing.T) {
	var c Campaign
	for _, s := range foundSeeds {
		t.Log(s.seed, s.what)
		trySeed(t, &c, s.seed)
	}
}
