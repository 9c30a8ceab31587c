package lease

import "testing"

// TestSilentInParts checks that a step skips only a bounded number of leases that are already due
// or no longer silent, and that the next step continues from there.
func TestSilentInParts(t *testing.T) {
	const stale = 10
	for what, pass := range map[string]func(*Lessor){
		"renewed": func(l *Lessor) {
			for id := range ID(stale) {
				if _, err := l.Renew(id+1, 0); err != nil {
					t.Fatal(err)
				}
			}
		},
		"due": func(l *Lessor) {
			l.Advance(11) // with AtOnce 0, this visits no leases
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := New(Config{AtOnce: 32, CheckpointInterval: 4})
			l.Promote(0)
			for id := range ID(stale) {
				mustGrant(t, l, Terms{ID: id + 1, TTL: 10})
			}
			catchUp(l, 5)
			mustGrant(t, l, Terms{ID: stale + 1, TTL: 100})
			catchUp(l, 10)
			l.tracker.cfg.AtOnce = 0
			pass(l)
			l.tracker.cfg.AtOnce = 32
			for _, want := range []int{0, 0, 1} {
				if silent := l.Silent(1); len(silent) != want || l.MoreSilent() != (want == 0) {
					t.Errorf("silent are %v, want %d; more: %v", silent, want, l.MoreSilent())
				}
				if at, ok := l.Next(); want == 0 && (!ok || at != l.now) {
					t.Errorf("the next look is at %d, %v", at, ok)
				}
			}
			if err := l.CheckInvariants(); err != nil {
				t.Error(err)
			}
		})
	}
}
