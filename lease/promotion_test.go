package lease

import (
	"slices"
	"testing"
)

// parts returns a primary that was promoted at instant 100 and visits two leases per step. It has
// five leases with TTLs slightly above 1 s. The third is checkpointed with 500 ms left; the fifth
// was checkpointed earlier and has since been cleared.
func parts(t *testing.T) *Lessor {
	t.Helper()
	l := New(Config{AtOnce: 2})
	for id := range ID(5) {
		mustGrant(t, l, Terms{ID: id + 1, TTL: 1001 + TTL(id)})
	}
	l.Advance(50)
	l.Checkpoint([]Checkpoint{{ID: 3, Token: 3, Remaining: 500}, {ID: 5, Token: 5, Remaining: 700}})
	l.Checkpoint([]Checkpoint{{ID: 5, Token: 5}})
	l.Promote(100)
	return l
}

// met returns the number of leases that are being timed.
func (l *Lessor) met() (n int) {
	for slot := range l.table.top {
		if l.tracker.timings.get(slot).expiry != 0 {
			n++
		}
	}
	return n
}

// TestPromotionInParts checks that a promotion visits a bounded number of leases per step. The
// caller can see that more remain, and each lease gets the same times as in a single step.
func TestPromotionInParts(t *testing.T) {
	l := parts(t)
	for now, want := range []int{2, 4, 5} {
		if now > 0 {
			l.Advance(100 + Instant(now))
		}
		if got := l.met(); got != want {
			t.Errorf("after step %d %d leases are timed, want %d", now, got, want)
		}
		if at, ok := l.Next(); ok && at == l.now != (want < 5) {
			t.Errorf("after step %d the next look is at %d", now, at)
		}
		if at, ok := l.NextDue(); ok && at == l.now != (want < 5) {
			t.Errorf("after step %d the next lease may be due at %d", now, at)
		}
	}
	for id, want := range map[ID]Instant{1: 1102, 2: 1103, 3: 551, 4: 1105, 5: 1106} {
		if at, _ := l.Expiry(id); at != want {
			t.Errorf("lease %d ends at %d, want %d", id, at, want)
		}
	}
}

// TestNotVisitedYet checks that operations have the same effect on a lease whether or not a new
// primary has visited it yet.
func TestNotVisitedYet(t *testing.T) {
	for _, c := range []struct {
		what string
		do   func(l *Lessor)
		want Instant // of lease 5
		met  int
	}{
		{"asked for its end", func(*Lessor) {}, 1106, 3},
		{"renewed", func(l *Lessor) {
			l.now = 200 // without calling Advance, which would visit more leases
			l.tracker.now = 200
			if _, err := l.Renew(5, 0); err != nil {
				t.Error(err)
			}
		}, 1206, 3},
		{"of a smaller TTL", func(l *Lessor) {
			if _, err := l.ChangeTTL(5, 5, 10); err != nil {
				t.Error(err)
			}
		}, 1106, 3},
		{"another of its ID", func(l *Lessor) {
			if _, err := l.Revoke(5); err != nil {
				t.Error(err)
			}
			mustGrant(t, l, Terms{ID: 5, TTL: 50})
		}, 151, 3},
		{"checkpointed", func(l *Lessor) {
			l.Checkpoint([]Checkpoint{{ID: 5, Token: 5, Remaining: 9}})
		}, 1106, 3},
		{"recounted", (*Lessor).Recount, 1106, 4}, // plus lease 3
		{"all checkpointed anew", (*Lessor).CheckpointAll, 1106, 4},
	} {
		t.Run(c.what, func(t *testing.T) {
			l := parts(t)
			c.do(l)
			if at, _ := l.Expiry(5); at != c.want {
				t.Errorf("it ends at %d, want %d", at, c.want)
			}
			if got := l.met(); got != c.met {
				t.Errorf("%d leases are timed, want %d", got, c.met)
			}
			catchUp(l, l.now)
			if at, _ := l.Expiry(5); at != c.want {
				t.Errorf("once all are timed it ends at %d, want %d", at, c.want)
			}
			if at, _ := l.Expiry(3); at != 551 {
				t.Errorf("lease 3 ends at %d", at)
			}
			if err := l.CheckInvariants(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDueInParts checks that a step visits a bounded number of leases that expire at the same
// instant.
func TestDueInParts(t *testing.T) {
	l := New(Config{AtOnce: 2})
	l.Promote(0)
	for id := range ID(5) {
		mustGrant(t, l, Terms{ID: id + 1, TTL: 10})
	}
	var ended []ID
	for _, want := range []int{2, 4, 5, 5} {
		l.Advance(11)
		for _, d := range l.Due(100) {
			ended = append(ended, d.ID)
			l.Expire(d)
		}
		if len(ended) != want {
			t.Errorf("%v have ended, want %d", ended, want)
		}
		if at, ok := l.Next(); ok != (want < 5) || ok && at != 11 {
			t.Errorf("with %d leases left the next look is at %d, %v", l.Len(), at, ok)
		}
	}
	if slices.Sort(ended); !slices.Equal(ended, []ID{1, 2, 3, 4, 5}) {
		t.Errorf("%v have ended", ended)
	}
}

// TestSilentPastItsExpiry covers silent leases past their expiry that no step has visited yet. They
// must not be checkpointed with 0 ms left, which would mean that their holders had renewed them.
func TestSilentPastItsExpiry(t *testing.T) {
	l := New(Config{AtOnce: 1, CheckpointInterval: 4})
	l.Promote(0)
	for id := range ID(2) {
		mustGrant(t, l, Terms{ID: id + 1, TTL: 10})
	}
	catchUp(l, 7) // both are silent
	l.Advance(11)
	if silent := l.Silent(10); len(silent) > 0 {
		t.Errorf("at their expiry leases are silent: %v", silent)
	}
	if due := l.Due(10); len(due) != 2 {
		t.Errorf("due are %v, want both", due)
	}
}

// TestDueAmongStale checks that a step skips only a bounded number of leases that are no longer
// due, and that the next step continues from there.
func TestDueAmongStale(t *testing.T) {
	const stale = 10
	l := New(Config{AtOnce: 32})
	l.Promote(0)
	for id := range ID(stale + 1) {
		mustGrant(t, l, Terms{ID: id + 1, TTL: 10})
	}
	l.Advance(11)
	for id := range ID(stale) {
		if _, err := l.Renew(id+1, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{0, 0, 1} {
		if due := l.Due(1); len(due) != want {
			t.Errorf("due are %v, want %d", due, want)
		}
	}
}

// TestRemainingFromFirstPromotion checks that the remaining time of a recovered silent lease counts
// from the first promotion after the recovery, even if the member was demoted before it visited the
// lease (L7).
func TestRemainingFromFirstPromotion(t *testing.T) {
	l := New(Config{AtOnce: 1})
	var s State
	for id := range ID(3) {
		s.Leases = append(s.Leases, Info{
			Terms: Terms{ID: id + 1, TTL: 1000}, Token: Token(id) + 1, Stamp: 1, Remaining: 500,
		})
	}
	s.LastToken = 3
	if err := l.Recover(s); err != nil {
		t.Fatal(err)
	}
	for _, now := range []Instant{100, 200, 300} {
		l.Promote(now)
		l.Demote()
		if ttl, _ := l.Remaining(3); ttl != TTL(600-now) {
			t.Errorf("at %d this member counts %d ms of lease 3, want %d", now, ttl, 600-now)
		}
		if at, _ := l.SilentUntil(3); at != 601 {
			t.Errorf("at %d lease 3 may end at %d, want 601", now, at)
		}
	}
	l.Promote(400)
	for id := range ID(3) {
		if at, _ := l.Expiry(id + 1); at != 601 {
			t.Errorf("lease %d ends at %d, want 601", id+1, at)
		}
	}
	l.Demote()
	if err := l.Recover(s); err != nil {
		t.Fatal(err)
	}
	l.Promote(500)
	if at, _ := l.Expiry(3); at != 1001 {
		t.Errorf("recovered again, lease 3 ends at %d, want 1001", at)
	}
}
