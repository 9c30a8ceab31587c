package sim

import "testing"

// A fault of the network ends for good, also when a member was added while it went on:
// else what is taken for a healthy stretch is not. Seeds 20385 (L7) and others found
// leases that ended late because their members' links stayed slow.
func TestLinksHeal(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(Options{Seed: seed})
		w.start()
		n := &w.injector
		n.lossy()
		n.clog()
		n.partition()
		n.newcomer()
		n.heal()
		for from := range w.links {
			for to, l := range w.links[from] {
				if l != (link{}) {
					t.Fatalf("seed %d: the link from %d to %d is still %+v", seed, from, to, l)
				}
			}
		}
		for _, c := range w.clients {
			c.kill()
		}
	}
}
