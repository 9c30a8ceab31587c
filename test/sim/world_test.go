package sim

import (
	"fmt"
	"hash/fnv"
	"testing"
	"testing/cryptotest"
)

// play runs a seed without the checkers.
func play(t *testing.T, o Options) *Result {
	t.Helper()
	// The Raft library draws election timeouts from crypto/rand.
	cryptotest.SetGlobalRandom(t, o.Seed)
	return Run(o)
}

// TestRepeats checks that a seed reproduces a run exactly, down to the last event.
func TestRepeats(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		var sums [2]uint64
		var lines [2][]string
		for i := range sums {
			r := play(t, Options{Seed: seed, Duration: 40 * Second, Timeline: 1 << 20})
			lines[i] = r.Timeline
			h := fnv.New64a()
			fmt.Fprintln(h, r.Events, r.Coverage, r.Applied, r.Roles, r.Hashes, r.Faults)
			for _, op := range r.Ops {
				fmt.Fprintln(h, op.Client, op.Member, op.Kind, op.Start, op.End, op.Outcome, op.Err)
			}
			for _, d := range r.Deliveries {
				fmt.Fprintln(h, d.At, d.Watch, d.Revision, len(d.Events))
			}
			for _, x := range r.Waits {
				fmt.Fprintln(h, *x)
			}
			for _, v := range r.Broken {
				t.Errorf("seed %d: %s", seed, v.What)
			}
			sums[i] = h.Sum64()
		}
		if sums[0] == sums[1] {
			continue
		}
		for i := range lines[0] {
			if i >= len(lines[1]) || lines[0][i] != lines[1][i] {
				t.Errorf("seed %d differs from: %s", seed, lines[0][i])
				break
			}
		}
	}
}
