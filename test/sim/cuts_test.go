package sim

import "testing"

// A network fault ends completely, even if a member was added during it. Otherwise a stretch counts
// as healthy that is not. Seeds 20385 (L7) and others found leases that ended late because links
// stayed slow.
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
