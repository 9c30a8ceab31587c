package sim

import (
	"testing"
	"testing/cryptotest"
)

// TestAwayWhileOthersAreReplaced checks that a member catches up if all other members are replaced
// while it is down, and that it then ends and retains the same leases as the others. Each run ends
// with a check that no member lags behind.
func TestAwayWhileOthersAreReplaced(t *testing.T) {
	replaced := 0
	for seed := range uint64(3) {
		cryptotest.SetGlobalRandom(t, seed)
		p := newWorld(Options{Seed: seed}).p
		p.Members, p.Faults, p.Calm = 5, Second, 20*Second
		for i := range faults {
			switch faults[i].kind {
			case faultLostDisk, faultAddMember, faultRemove:
				p.Weights[i] = 20
			case faultLossy, faultTransfer:
				p.Weights[i] = 3
			default:
				p.Weights[i] = 0
			}
		}
		w := newWorld(Options{Seed: seed, Profile: &p})
		w.start()
		w.at(Second, func() { w.members[0].stop(true, true) })
		for len(w.queue) > 0 && w.queue[0].at <= w.end && len(w.h.Broken) == 0 {
			w.step()
		}
		w.finish()
		for _, c := range w.clients {
			c.kill()
		}
		for _, m := range w.members[1:5] {
			if m.gone {
				replaced++
			}
		}
		for _, v := range Check(w.h, p.Limits()).Violations {
			t.Errorf("seed %d: %v %s: %s", seed, v.At, v.ID, v.What)
		}
	}
	if replaced < 6 {
		t.Errorf("only %d other members were replaced in all runs: the test proves nothing", replaced)
	}
}
