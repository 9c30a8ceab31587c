package directory

import (
	"maps"
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// TestInvalidationsAlone checks that a range is pending for a cache from drop until takeAnswered.
// The invalidation is resent until then. Writes wait for the drop, and renewals for all drops.
func TestInvalidationsAlone(t *testing.T) {
	v := newInvalidations(Limits{}.withDefaults())
	c := heldBy(7, 1, "a", "b")
	sound := func() {
		t.Helper()
		if err := v.checkInvariants(maps.Keys(map[*cache]bool{c: true})); err != nil {
			t.Fatal(err)
		}
	}
	v.addRoute(c, 1)
	w, renewal := &Write{}, &Write{}
	v.waitForAll(renewal, c) // nothing is pending yet
	x, added := v.drop(c, c.ranges[0], 100)
	if again, twice := v.drop(c, c.ranges[0], 100); !added || twice || again != x {
		t.Error("a range is pending twice, or not at all")
	}
	v.wait(w, c, x)
	v.expect(c, 500)
	v.waitForAll(renewal, c)
	sound()
	if w.blocked != 1 || renewal.blocked != 1 {
		t.Errorf("the write waits for %d drops, the renewal for %d", w.blocked, renewal.blocked)
	}
	if n := len(v.takeDue(100)) + len(v.takeDue(101)); n != 1 {
		t.Errorf("%d invalidations were sent at once", n)
	}
	if n := len(v.takeDue(100 + lease.Instant(resendFirst))); n != 1 {
		t.Errorf("%d invalidations were resent", n)
	}
	sound()
	v.acked(c, 2, 300)
	if v.nextAnswered() != c || !v.behind() {
		t.Fatal("the acknowledgment was ignored")
	}
	done := v.takeAnswered(c, 10, 300)
	if !slices.Equal(done, []*drop{x}) || !slices.Equal(v.takeWrites(c, x), []*Write{w}) {
		t.Errorf("acknowledged: %v", done)
	}
	v.expect(c, 0)
	if got := c.takeRenewers(); !slices.Equal(got, []*Write{renewal}) {
		t.Errorf("renewals: %v", got)
	}
	sound()
	if v.nextAnswered() != nil || len(v.unacked) > 0 || len(v.takeRenewable()) != 1 {
		t.Error("something is still pending")
	}
}

// TestDropIsNew checks that drop reports whether a range was added, also once everything is
// pending.
func TestDropIsNew(t *testing.T) {
	v := newInvalidations(Limits{Drops: 1}.withDefaults())
	c := heldBy(7, 1, "a", "b", "c")
	for i, want := range []bool{true, true, false} {
		if _, added := v.drop(c, c.ranges[i], 100); added != want {
			t.Errorf("range %d is new: %v", i, added)
		}
	}
	if !c.joined || len(c.drops) != len(c.ranges) {
		t.Errorf("%d ranges are pending, want all", len(c.drops))
	}
}
