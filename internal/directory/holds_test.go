package directory

import (
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// heldBy returns a cache whose lease holds some keys.
func heldBy(id lease.ID, token lease.Token, keys ...string) *cache {
	c := &cache{hold: hold{id: id, token: token}}
	for _, k := range keys {
		c.ranges = append(c.ranges, keyrange.Range{Key: k})
	}
	return c
}

// A cache is found by its token and by its ranges until it is removed.
func TestHoldsFind(t *testing.T) {
	h := newHolds()
	old, c := heldBy(1, 5, "a", "b"), heldBy(1, 6, "b", "b")
	h.add(old, true)
	h.unlink(old)
	h.add(c, false)
	if h.find(1, 5) != old || h.find(1, 6) != c || h.find(2, 6) != nil || h.live[1] != c {
		t.Errorf("found %v, %v, of the lease %v", h.find(1, 5), h.find(1, 6), h.live[1])
	}
	if list, _ := h.held.Get(keyrange.Range{Key: "b"}); list.Len() != 2 {
		t.Errorf("%d caches hold b", list.Len())
	}
	h.remove(old)
	if h.live[1] != c || h.find(1, 5) != nil || h.held.Hits(keyrange.Range{Key: "a"}) {
		t.Errorf("after the removal of another: of the lease %v, found %v", h.live[1], h.find(1, 5))
	}
	h.remove(c)
	if len(h.caches)+len(h.live) > 0 || h.held.Hits(keyrange.Range{Key: "b"}) {
		t.Errorf("after all are removed: %+v", h)
	}
}

// The copies that caches may have are counted and bounded.
func TestHoldsCount(t *testing.T) {
	h, l := newHolds(), &Limits{Spans: 2, AllSpans: 3}
	a, b := heldBy(1, 1), heldBy(2, 2)
	h.add(a, true)
	h.add(b, false)
	h.setOpen(b, true)
	h.setOpen(b, true)
	h.gain(a, []keyrange.Range{{Key: "a"}, {Key: "c"}, {Key: "a"}})
	if h.wide != 1 || h.open != 1 || h.spans != 2 || h.fits(a, 1, l) || !h.fits(b, 1, l) ||
		h.fits(b, 2, l) {
		t.Errorf("%d wide, %d open, %d spans", h.wide, h.open, h.spans)
	}
	h.lose(a, keyrange.Range{Key: "a"})
	if h.spans != 1 || !h.fits(a, 1, l) {
		t.Errorf("%d spans after a loss", h.spans)
	}
	h.loseAll(a)
	h.remove(b)
	if h.wide != 0 || h.open != 0 || h.spans != 0 {
		t.Errorf("at the end %d wide, %d open, %d spans", h.wide, h.open, h.spans)
	}
}

// A new hold is not filled before the commands that did not look for it are settled, nor before
// those that end leases to which such a command may have attached keys.
func TestFences(t *testing.T) {
	f := fences{settled: 1}
	first, second, last := heldBy(1, 1), heldBy(2, 2), heldBy(3, 3)
	f.begin(first)
	if !f.passed(first) {
		t.Error("a hold before any command waits")
	}
	f.admit(false) // 1
	f.begin(second)
	f.admit(true) // 2, which ends leases
	f.begin(last)
	f.admit(false) // 3
	for below, want := range []bool{1: false, 2: false, 3: true} {
		if f.settle(uint64(below)); f.passed(second) != want {
			t.Errorf("settled below %d: passed %v", below, !want)
		}
	}
	if f.passed(last) != true || f.waiting != nil {
		t.Errorf("a hold behind the last that is settled: %v, %d wait", f.passed(last), len(f.waiting))
	}
}
