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
