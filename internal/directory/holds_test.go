package directory

import (
	"slices"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// heldBy returns a cache whose lease holds the given keys.
func heldBy(id lease.ID, token lease.Token, keys ...string) *cache {
	c := &cache{hold: hold{id: id, token: token}}
	for _, k := range keys {
		c.ranges = append(c.ranges, keyrange.Range{Key: k})
	}
	return c
}

// TestFences checks that a new hold is not filled until all commands admitted before it have been
// settled, because those commands did not wait for it. The hold must also wait for a later command
// that ends leases if an earlier command may have attached keys to those leases.
func TestFences(t *testing.T) {
	f := fences{settled: 1}
	first, second, last := heldBy(1, 1), heldBy(2, 2), heldBy(3, 3)
	f.begin(first)
	if !f.passed(first) {
		t.Error("a hold before any command waits")
	}
	f.admit(false) // command 1
	f.begin(second)
	f.admit(true) // command 2, which ends leases
	f.begin(last)
	f.admit(false) // command 3
	for below, want := range []bool{1: false, 2: false, 3: true} {
		if f.settle(uint64(below)); f.passed(second) != want {
			t.Errorf("settled below %d: passed %v", below, !want)
		}
	}
	if f.passed(last) != true || f.waiting != nil {
		t.Errorf("a hold behind the last that is settled: %v, %d wait", f.passed(last), len(f.waiting))
	}
}

// TestHoldsAlone checks that holds finds the cache of a lease until it becomes an orphan, and that
// an orphan that has stopped is empty and is taken once, unless it is put back.
func TestHoldsAlone(t *testing.T) {
	h := newHolds()
	c, other, old := heldBy(7, 1, "a", "b"), heldBy(7, 2, "a"), heldBy(7, 3, "a")
	sound := func() {
		t.Helper()
		if err := h.checkInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	h.add(c, false)
	h.gain(c, c.ranges)
	h.orphan(c, 100, 200)
	h.add(other, true)
	old.orphan = true // it was an orphan before it was added
	h.add(old, true)
	h.orphan(old, 100, 300)
	sound()
	if h.find(7, 1) != c || h.live[7] != other || h.spans != 2 || h.wide != 2 {
		t.Errorf("the lease has cache %d, with %d spans and %d wide", h.live[7].token, h.spans, h.wide)
	}
	if at, ok := h.orphans.first(); !ok || at != 200 {
		t.Errorf("the orphan expires at %d, %v", at, ok)
	}
	if !h.stop(c) || h.stop(c) || h.spans != 0 {
		t.Errorf("the orphan has %d spans, or did not stop exactly once", h.spans)
	}
	sound()
	for range 2 {
		if got := h.takeStopped(3); !slices.Equal(got, []lease.Token{1}) {
			t.Errorf("stopped: %v", got)
		}
		h.putBack([]lease.Token{1})
	}
	h.remove(c)
	h.remove(other)
	h.remove(old)
	sound()
	if h.putBack([]lease.Token{1}); len(h.takeStopped(3)) > 0 || len(h.caches)+len(h.live) > 0 {
		t.Error("a removed cache is still recorded")
	}
}
